#!/usr/bin/env python3
"""tracing.py SERVER MODEL: the spans that a server sends to a collector, and collectors that fail.

The collector is an HTTP server of this script; it knows nothing of Triptych's code."""

import http.server
import json
import os
import queue
import signal
import sys
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def check(holds, what):
    if not holds:
        sys.exit(f"tracing: WRONG: {what}")


class Collector:
    """Keeps what it is sent. `answer`: a status, or "hang"."""

    def __init__(self, answer=200):
        self.received = queue.Queue()
        self.ended = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.received.put((self.path, dict(self.headers), body))
                if answer == "hang":
                    collector.ended.wait()
                    return
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self):
        """The spans of the next batch."""
        path, headers, body = self.received.get(timeout=60)
        check(path == "/v1/traces", path)
        check(headers["Content-Type"] == "application/json", headers)
        resources = json.loads(body)["resourceSpans"]
        check(len(resources) == 1, resources)
        return resources[0], headers, resources[0]["scopeSpans"][0]["spans"]

    def close(self):
        self.ended.set()
        self.server.shutdown()


def complete(address, traceparent=None, **fields):
    body = {"model": "mla", "prompt": "ROMEO:", "max_tokens": 8, "seed": 1, **fields}
    headers = {"Content-Type": "application/json"}
    if traceparent:
        headers["traceparent"] = traceparent
    request = urllib.request.Request(f"http://{address}/v1/completions", json.dumps(body).encode(),
                                     headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def serve(program, model, url):
    return serving.serve(program, "--model", f"mla={model}", "--kv-cache-bytes", "16MiB",
                         "--otlp-endpoint", url)


def stop(server):
    server.send_signal(signal.SIGTERM)
    check(server.wait(timeout=60) == 0, f"the server ended with {server.returncode}")


def check_request(collector, answer, begin):
    resource, headers, spans = collector.spans()
    check(headers["x-key"] == "v 1", headers)
    check(attributes(resource["resource"])["service.name"] == "chat", resource["resource"])
    check([span["name"] for span in spans] ==
          ["text_completion mla", "queue", "prefill", "decode"], spans)
    request, parts = spans[0], spans[1:]
    check((request["traceId"], request["parentSpanId"]) == (TRACE, PARENT), request)
    check(request["kind"] == 2 and "status" not in request, request)
    check(len({span["spanId"] for span in spans}) == 4, spans)
    times = [int(request["startTimeUnixNano"])]
    for part in parts:
        check(part["parentSpanId"] == request["spanId"] and part["traceId"] == TRACE, part)
        check(int(part["startTimeUnixNano"]) == times[-1], spans)
        times.append(int(part["endTimeUnixNano"]))
    check(times == sorted(times) and times[-1] <= int(request["endTimeUnixNano"]), spans)
    check(begin <= times[0] / 1e9 + 1 and int(request["endTimeUnixNano"]) / 1e9 <= time.time() + 1,
          spans)
    said, usage = attributes(request), answer["usage"]
    check(int(said["gen_ai.usage.input_tokens"]) == usage["prompt_tokens"], said)
    check(int(said["gen_ai.usage.output_tokens"]) == usage["completion_tokens"], said)
    check(said["gen_ai.request.model"] == "mla" and said["triptych.outcome"] == "length", said)
    # Reduced MLA of rank 64 against MHA of 8 heads of 32.
    check(int(said["kv.bytes.as_mha"]) == 8 * int(said["kv.bytes.used"]), said)
    check(int(said["kv.bytes.reserved"]) >= int(said["kv.bytes.used"]) > 0, said)
    check("ROMEO" not in json.dumps(spans), "a prompt in a span")


def check_spans(program, model):
    collector = Collector()
    os.environ.update(OTEL_SERVICE_NAME="chat", OTEL_EXPORTER_OTLP_HEADERS="x-key=v%201")
    server, _, address = serve(program, model, collector.url)
    begin = time.time()
    answer = complete(address, f"00-{TRACE}-{PARENT}-01")
    check_request(collector, answer, begin)
    complete(address, f"00-{TRACE}-{PARENT}-00")  # its caller does not sample it
    complete(address)
    _, _, spans = collector.spans()
    check(len(spans) == 4 and "parentSpanId" not in spans[0], spans)
    check(spans[0]["traceId"] != TRACE, spans)
    complete(address, f"00-{TRACE}-{PARENT}-01")
    stop(server)  # sends what waits
    _, _, spans = collector.spans()
    check(len(spans) == 4, spans)
    check(collector.received.empty(), "more than three batches")
    collector.close()


def check_failures(program, model):
    """The server serves on and stops, whatever its collector does."""
    for answer in (500, 302, "hang"):
        collector = Collector(answer)
        server, _, address = serve(program, model, collector.url)
        complete(address)
        collector.received.get(timeout=60)
        complete(address)
        stop(server)
        collector.close()
    server, _, address = serve(program, model, "http://127.0.0.1:1")
    complete(address)
    stop(server)


def main():
    check_spans(*sys.argv[1:])
    check_failures(*sys.argv[1:])
    print("tracing: spans, and collectors that fail: right")


if __name__ == "__main__":
    main()
