{{/* Names, labels and rules that several templates share. Names are quoted: YAML reads a release called y, on or 123 as another
     type. The labels that select the operator's Pods are those of `holdfast manifests`: a Deployment's selector is immutable, and
     NetworkPolicies of other namespaces name the labels. */}}

{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "holdfast.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{/* The namespace of the Roles and of the Lease: an install for the whole cluster looks for the Lease in the watched namespace. */}}
{{- define "holdfast.scopeNamespace" -}}
{{- default (include "holdfast.namespace" .) .Values.watch.namespace -}}
{{- end }}

{{- define "holdfast.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "holdfast.fullname" .) .Values.serviceAccount.name -}}
{{- else if or (not .Values.serviceAccount.name) (eq .Values.serviceAccount.name "default") -}}
{{- fail "serviceAccount.name: name the operator's own ServiceAccount. The admission policies know the operator by this name, and every workload of the Kubernetes cluster may run as default" -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "holdfast.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "holdfast.selectorLabels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/component: operator
{{- end }}

{{- define "holdfast.helmLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Metadata of an object. `root` is the chart's context; optional: `namespace`, `labels` (without them: those of the
     operator's objects) and `annotations`. */}}
{{- define "holdfast.metadata" -}}
{{- $own := default (include "holdfast.selectorLabels" .root | fromYaml) .labels -}}
{{- $labels := merge (dict) $own (include "holdfast.helmLabels" .root | fromYaml) (default (dict) .root.Values.commonLabels) -}}
{{- $annotations := merge (dict) (default (dict) .annotations) (default (dict) .root.Values.commonAnnotations) -}}
name: {{ quote .name }}
{{- with .namespace }}
namespace: {{ quote . }}
{{- end }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* CEL: the request comes from an operator, of whichever namespace. A dot of the name is no pattern. */}}
{{- define "holdfast.isOperator" -}}
request.userInfo.username.matches('^system:serviceaccount:[^:]+:{{ include "holdfast.serviceAccountName" . | replace "." "[.]" }}$')
{{- end }}
