{{/* Names and metadata that several templates share. Names are quoted: YAML reads a release called y, on or 123 as another type. */}}

{{- define "holdfast-cluster.name" -}}
{{- default .Release.Name .Values.nameOverride -}}
{{- end }}

{{- define "holdfast-cluster.storeName" -}}
{{- default (include "holdfast-cluster.name" .) .Values.store.name -}}
{{- end }}

{{/* Labels of the release's objects. A parent chart with two of this chart gives each another name (`alias`). */}}
{{- define "holdfast-cluster.selector" -}}
app.kubernetes.io/instance={{ .Release.Name }},app.kubernetes.io/name={{ .Chart.Name }}
{{- end }}

{{/* Names of the release's objects of a kind (`root`, `kind`) in Kubernetes, as JSON. `helm template` and a dry run in the client
     ask no API server: for them there are none. */}}
{{- define "holdfast-cluster.present" -}}
{{- $root := .root -}}
{{- $names := list -}}
{{- range (lookup "holdfast.dev/v1alpha1" .kind .root.Release.Namespace "").items -}}
{{- $labels := default (dict) .metadata.labels -}}
{{- $is := and (eq (get $labels "app.kubernetes.io/instance") $root.Release.Name) (eq (get $labels "app.kubernetes.io/name") $root.Chart.Name) -}}
{{- $of := eq (get (default (dict) .metadata.annotations) "meta.helm.sh/release-name") $root.Release.Name -}}
{{- if and $is $of (not .metadata.deletionTimestamp) -}}
{{- $names = append $names .metadata.name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* Metadata of an object. `root` is the chart's context; optional: `annotations`, and `keep`, with which neither `helm uninstall`
     nor an upgrade without the object deletes it. */}}
{{- define "holdfast-cluster.metadata" -}}
{{- $chart := .root.Chart -}}
{{- $labels := dict "app.kubernetes.io/name" $chart.Name "app.kubernetes.io/instance" .root.Release.Name
      "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/version" $chart.AppVersion
      "helm.sh/chart" (printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63) -}}
{{- $keep := default false .keep | ternary (dict "helm.sh/resource-policy" "keep") (dict) -}}
{{- $annotations := merge $keep (default (dict) .annotations) (default (dict) .root.Values.commonAnnotations) -}}
name: {{ quote .name }}
namespace: {{ quote .root.Release.Namespace }}
labels:
  {{- merge $labels (default (dict) .root.Values.commonLabels) | toYaml | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
