# One image for every orderflow process. The base is overridable, for a mirror or a newer patch release.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --no-deps --only-binary :all: --requirement requirements-build.lock \
    && python -m venv --without-pip /opt/orderflow \
    && python -m pip --python /opt/orderflow/bin/python install --require-hashes --no-deps --only-binary :all: \
        --requirement requirements.lock
# The dependencies are a layer of their own: a change of the code does not install them again.
COPY pyproject.toml README.md LICENSE ./
COPY orderflow orderflow
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && python -m pip --python /opt/orderflow/bin/python install --no-deps --no-index /dist/*.whl

FROM ${PYTHON_IMAGE}
# A fixed uid, so that volumes and mounted files can be given to it; it owns its state directory and nothing else.
RUN groupadd --gid 10001 orderflow \
    && useradd --uid 10001 --gid orderflow --no-create-home --home-dir /var/lib/orderflow --shell /usr/sbin/nologin orderflow \
    && install --directory --owner=orderflow --group=orderflow --mode=0750 /var/lib/orderflow
COPY --from=build /opt/orderflow /opt/orderflow
ENV PATH=/opt/orderflow/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/orderflow
STOPSIGNAL SIGTERM
# The command line is the entry point, not the worker: the same image runs `worker`, `simulator` and, by hand, every
# other verb (`docker run orderflow doctor`). In exec form it is PID 1 and gets SIGTERM itself, so it can drain.
ENTRYPOINT ["orderflow"]
CMD ["worker"]
