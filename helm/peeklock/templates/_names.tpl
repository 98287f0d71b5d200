{{/* Names and labels. */}}

{{- define "peeklock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Leaves room for every suffix that a template adds. */}}
{{- define "peeklock.fullname" -}}
{{- $name := include "peeklock.name" . }}
{{- $joined := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $joined .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "peeklock.selectorLabels" -}}
app.kubernetes.io/name: {{ include "peeklock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{/* Labels of every resource; takes (list $ "component"). */}}
{{- define "peeklock.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "peeklock.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "peeklock.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "peeklock.serviceAccountName" -}}
{{- default (ternary (include "peeklock.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "peeklock.claimName" -}}
{{- default (printf "%s-data" (include "peeklock.fullname" .)) .Values.persistence.existingClaim }}
{{- end }}
