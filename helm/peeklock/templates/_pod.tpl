{{/* Shared by server, migration and test pods: no process is root, and only the mounts are writable. */}}

{{- define "peeklock.podSecurityContext" -}}
runAsNonRoot: true
{{- range $key, $id := .Values.podSecurity }}
{{- if not (kindIs "invalid" $id) }}
{{ $key }}: {{ int64 $id }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "peeklock.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end }}

{{/* Where a pod runs and what it may pull. Service links are off, because Kubernetes injects PEEKLOCK_PORT=tcp://... for a
     Service called peeklock. */}}
{{- define "peeklock.podPlacement" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Takes (list $ "ENVIRONMENT_NAME" "key in the Secret"). */}}
{{- define "peeklock.secretEnv" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ (index . 0).Values.existingSecret }}
      key: {{ index . 2 }}
{{- end }}

{{- define "peeklock.databaseEnv" -}}
- name: PEEKLOCK_DATA_DIR
  value: /data
- name: PEEKLOCK_LOG_FORMAT
  value: json
{{- if eq .Values.mode "external" }}
{{ include "peeklock.secretEnv" (list . "PEEKLOCK_DATABASE_URL" "database-url") }}
{{- end }}
{{- end }}

{{- define "peeklock.serverEnv" -}}
- name: PEEKLOCK_HOST
  value: 0.0.0.0
- name: PEEKLOCK_PORT
  value: "8080"
- name: PEEKLOCK_WORKERS
  value: {{ .Values.server.workers | quote }}
- name: PEEKLOCK_LONG_POLL_CAP_SECONDS
  value: {{ .Values.server.longPollCapSeconds | quote }}
- name: PEEKLOCK_SHUTDOWN_GRACE_SECONDS
  value: {{ .Values.server.shutdownGraceSeconds | quote }}
- name: PEEKLOCK_STATE_RETENTION_SECONDS
  value: {{ .Values.server.stateRetentionSeconds | quote }}
- name: PEEKLOCK_AUTO_CREATE_QUEUES
  value: {{ .Values.server.autoCreateQueues | quote }}
- name: PEEKLOCK_ROOT_PATH
  value: {{ .Values.ingress.rootPath | quote }}
- name: PEEKLOCK_TRUSTED_PROXIES
  value: {{ join "," .Values.server.trustedProxies | quote }}
- name: PEEKLOCK_SQS
  value: {{ .Values.sqs.enabled | quote }}
{{- with .Values.sqs.url }}
- name: PEEKLOCK_SQS_URL
  value: {{ . | quote }}
{{- end }}
{{ include "peeklock.databaseEnv" . }}
{{- if and (eq .Values.mode "external") .Values.redis.enabled }}
{{ include "peeklock.secretEnv" (list . "PEEKLOCK_REDIS_URL" "redis-url") }}
{{- end }}
{{ include "peeklock.secretEnv" (list . "PEEKLOCK_BOOTSTRAP_KEY" "bootstrap-key") }}
      optional: true
{{- if .Values.metrics.namesQueues }}
{{ include "peeklock.secretEnv" (list . "PEEKLOCK_METRICS_KEY" "metrics-key") }}
{{- end }}
{{- if .Values.sqs.signatures }}
{{ include "peeklock.secretEnv" (list . "PEEKLOCK_SQS_SECRET" "sqs-secret") }}
{{- end }}
{{- end }}

{{- define "peeklock.volumeMounts" -}}
- name: data
  mountPath: /data
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "peeklock.scratchVolumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
