# The product without torch: command line, server, batch. See docs/deploy.md.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/fastgaze && /opt/fastgaze/bin/pip install --no-cache-dir '.[serve,batch]'

FROM python:3.12-slim
COPY --from=build /opt/fastgaze /opt/fastgaze
RUN useradd --create-home --uid 10001 gaze
USER gaze
WORKDIR /home/gaze
ENV PATH=/opt/fastgaze/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=3s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
ENTRYPOINT ["fastgaze"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
