{{/* Names and metadata that several templates share. */}}

{{- define "holdfast-cluster.name" -}}
{{- default .Release.Name .Values.nameOverride -}}
{{- end }}

{{- define "holdfast-cluster.storeName" -}}
{{- default (include "holdfast-cluster.name" .) .Values.store.name -}}
{{- end }}

{{/* Metadata of an object. `root` is the chart's context; optional: `annotations`. */}}
{{- define "holdfast-cluster.metadata" -}}
{{- $annotations := merge (dict) (default (dict) .annotations) (default (dict) .root.Values.commonAnnotations) -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  app.kubernetes.io/name: {{ .root.Chart.Name }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 }}
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
