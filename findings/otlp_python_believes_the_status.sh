#!/bin/bash
# OpenTelemetry's OTLP exporter for Python calls any answer below 400 a success: a page of HTML, a redirect, points refused.
#
# Version: opentelemetry-exporter-otlp-proto-http 1.45.2, opentelemetry-sdk 1.45.2
# Behaviour: OTLPMetricExporter looks at the status alone. The body isn't read, so the partial success by which a server says
#   how many points it refused and why is lost, and nothing is logged (at WARNING or above). A login page with status 200, as
#   proxies give, and a redirect without an address count as delivered. OTLP says that a client SHOULD log what was refused.
# Right: a refusal is told; HTML isn't an answer of OTLP.
# Output (2026-11-27):
#   200 application/x-protobuf, all taken: SUCCESS, logged: nothing
#   200 application/x-protobuf, 1 of 1 refused: SUCCESS, logged: nothing
#   200 text/html: SUCCESS, logged: nothing
#   302 text/html: SUCCESS, logged: nothing
#   400 text/html: FAILURE, logged: 1
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-sdk==1.45.2
cat > ask.py <<'E'
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse as Response
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

logged: list[logging.LogRecord] = []
keep = logging.Handler(logging.WARNING)
keep.emit = logged.append
logging.getLogger().addHandler(keep)
PROTOBUF, HTML = "application/x-protobuf", "text/html"
REFUSED = Response(partial_success={"rejected_data_points": 1, "error_message": "too old"}).SerializeToString()
ANSWERS = [
    (200, PROTOBUF, ", all taken", b""),
    (200, PROTOBUF, ", 1 of 1 refused", REFUSED),
    (200, HTML, "", b"<html>sign in</html>"),
    (302, HTML, "", b""),
    (400, HTML, "", b""),
]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, content, _, body = answer
        self.send_response(status)
        self.send_header("content-type", content)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
reader = InMemoryMetricReader()
MeterProvider([reader]).get_meter("m").create_counter("c").add(1)
data = reader.get_metrics_data()
for answer in ANSWERS:
    logged.clear()
    exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{server.server_port}/v1/metrics", timeout=3)
    result = exporter.export(data).name
    print(f"{answer[0]} {answer[1]}{answer[2]}: {result}, logged: {len(logged) or 'nothing'}")
E
env -u http_proxy -u HTTP_PROXY venv/bin/python ask.py 2> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
