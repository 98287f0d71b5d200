# The server's image; docs/deploy.md says how to build, run and deploy it.
ARG BASE=python:3.15-slim-trixie

# ---- the environment: exactly what requirements/ pins, by hash, and nothing that could install more
FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements/build.txt requirements/run.txt requirements/
RUN python3 -m venv /opt/peeklock \
 && /opt/peeklock/bin/pip install --require-hashes --requirement requirements/build.txt --requirement requirements/run.txt
COPY pyproject.toml LICENSE README.md ./
COPY requirements/run.in requirements/
COPY app app
COPY migrations migrations
RUN /opt/peeklock/bin/pip install --no-deps --no-build-isolation . \
 && /opt/peeklock/bin/pip uninstall --yes setuptools pip

# ---- the site of the documentation, which the server shows at /docs/guide
FROM ${BASE} AS guide
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore
WORKDIR /guide
COPY requirements/docs.txt requirements/
RUN python3 -m venv /opt/mkdocs \
 && /opt/mkdocs/bin/pip install --require-hashes --requirement requirements/docs.txt
COPY mkdocs.yml README.md CHANGELOG.md CONTRIBUTING.md ./
COPY app/README.md app/
COPY client/README.md client/
COPY developing/site_hooks.py developing/
COPY docs docs
COPY helm/peeklock/README.md helm/peeklock/
COPY pipeline/README.md pipeline/
COPY requirements/README.md requirements/
RUN /opt/mkdocs/bin/mkdocs build --strict --site-dir /site

# ---- the image
FROM ${BASE}
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Peeklock" \
      org.opencontainers.image.description="A message broker with a plain HTTP interface" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/peeklock /opt/peeklock
COPY --from=guide /site /opt/peeklock-guide
RUN install --directory --owner=10001 --group=10001 --mode=0700 /data
ENV PATH=/opt/peeklock/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PEEKLOCK_HOST=0.0.0.0 \
    PEEKLOCK_PORT=8080 \
    PEEKLOCK_DATA_DIR=/data \
    PEEKLOCK_GUIDE_DIR=/opt/peeklock-guide \
    PEEKLOCK_LOG_FORMAT=json
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
# Not urllib: it would ask a proxy named in the environment.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python3", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PEEKLOCK_PORT']), timeout=4); c.request('GET', '/livez'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["peeklock"]
CMD ["serve"]
