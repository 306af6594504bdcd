# stillme in a container: docker build -t stillme . && docker run --rm -v "$PWD:/audit" stillme run my-audit
# Extras: docker build --build-arg EXTRAS=hosted,judges -t stillme .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN python -m pip install --no-cache-dir build==1.3.0 && python -m build --wheel --outdir /wheels

FROM python:3.12-slim
ARG EXTRAS=""
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(ls /wheels/*.whl)${EXTRAS:+[$EXTRAS]}" && rm -rf /wheels
# Nothing runs as root, and what a run writes belongs to whoever mounts the folder.
RUN useradd --create-home --uid 1000 auditor && mkdir /audit && chown auditor /audit
USER auditor
WORKDIR /audit
ENTRYPOINT ["stillme"]
CMD ["--help"]
