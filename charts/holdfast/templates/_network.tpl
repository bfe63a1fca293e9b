{{/* Parts of the NetworkPolicies. Which connections Holdfast's Pods need is decided in `crates/manifests/src/network.rs`, and a test compares. */}}

{{- define "holdfast.networkPolicy" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "holdfast.metadata" (dict "root" .root "name" .name "namespace" .namespace) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- toYaml .selector | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- toYaml .ingress | nindent 4 }}
  egress:
    {{- toYaml .egress | nindent 4 }}
{{- end }}

{{/* A rule with TCP ports, and its peers if there are any. */}}
{{- define "holdfast.egress" -}}
{{- with .to }}
to:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- range .ports }}
  - port: {{ int . }}
    protocol: TCP
  {{- end }}
{{- end }}

{{/* OpenShift's name servers listen on the second port behind their Service. */}}
{{- define "holdfast.nameServers" -}}
ports:
  {{- range list 53 5353 }}
  - port: {{ . }}
    protocol: UDP
  - port: {{ . }}
    protocol: TCP
  {{- end }}
{{- end }}

{{/* Every Pod, since some networks do not count Pods among addresses, and every address except the metadata servers of clouds,
     which hand out a node's identity. */}}
{{- define "holdfast.outside" -}}
- namespaceSelector: {}
- ipBlock:
    cidr: 0.0.0.0/0
    except: [169.254.0.0/16, 100.100.100.200/32, 168.63.129.16/32]
- ipBlock:
    cidr: "::/0"
    except: ["fe80::/10", "fd00:ec2::/32", "fd20:ce::/32"]
{{- end }}
