#!/usr/bin/env python3
"""documented_curl.py SERVER: runs every curl command of DOCUMENTS verbatim against a server with their
models; each must return status 200 and a body. Commands in server/README.md and docker/README.md need a
token or a container, and are not included.

Only the address is replaced, by the port that the system chose."""

import pathlib
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
import serving

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = ["README.md", "server/http/README.md"]
ADDRESS = "127.0.0.1:8080"
MODELS = ["--model", f"mla={ROOT}/models/shakespeare-mla"] + [
    option
    for kind in ("mha", "gqa", "mla")
    for option in ("--model", f"shakespeare-{kind}={ROOT}/models/shakespeare-{kind}")
]


def commands(document):
    """The curl commands of a text's code blocks, with continuation lines."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", document, re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^(curl (?:[^\n]*\\\n)*[^\n]*)", block, re.MULTILINE)


def main():
    server, _, address = serving.serve(sys.argv[1], *MODELS, "--kv-cache-bytes", "64MiB")
    failed = 0
    try:
        for name in DOCUMENTS:
            found = list(commands((ROOT / name).read_text()))
            if not found:
                sys.exit(f"{name} has no curl command")
            for command in found:
                if ADDRESS not in command:
                    sys.exit(f"{name}: {command}\ncalls another address than {ADDRESS}")
                # The status follows the answer's body.
                run = subprocess.run(
                    ["bash", "-c", f"curl() {{ command curl --silent --write-out '%{{http_code}}' \"$@\"; }}\n"
                     + command.replace(ADDRESS, address)],
                    capture_output=True, text=True, timeout=120)
                body, status = run.stdout[:-3], run.stdout[-3:]
                if run.returncode != 0 or status != "200" or not body:
                    failed += 1
                    print(f"{name}: {command}\n{run.stdout}{run.stderr}")
                else:
                    print(f"{name}: {status}: {command.splitlines()[0]}")
        server.send_signal(signal.SIGTERM)
        if server.wait(timeout=60) != 0:
            sys.exit("the server did not drain")
    finally:
        server.kill()
    sys.exit(failed != 0)


main()
