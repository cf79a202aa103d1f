#!/usr/bin/env python3
"""Runs the commands of client/python/README.md verbatim, and compares the examples' output with
`triptych`'s.

    tests/python/run_examples.py --work DIR --bin DIR --python DIR

The commands run in --work, which gets links to proto and client, and the output folder build/python.
--python, the folder of a python3 with gRPC, comes first in PATH.
"""

import argparse
import json
import os
import re
import signal
import subprocess

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TEXTS = ["To be, or not to be", "To be, or not to bee"]
TIMEOUT = 120  # seconds


def check(holds, what):
    if not holds:
        raise SystemExit(f"python examples: WRONG: {what}")


def start_server(programs):
    server = subprocess.Popen(
        [os.path.join(programs, "triptych-server"), "--listen", "127.0.0.1:0", "--kv-cache-bytes",
         "8MiB", "--model", f"shakespeare-mla={ROOT}/models/shakespeare-mla"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = ""
    for line in server.stdout:
        log += line
        found = re.search(r"listening on (\S+)", line)
        if found:
            return server, found.group(1)
    raise SystemExit(f"python examples: the server did not start: {log}")


def commands():
    """The README's blocks of commands, except those that install packages."""
    with open(os.path.join(ROOT, "client", "python", "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```$", file.read(), re.M | re.S)
    return [block for block in blocks if "apt-get" not in block]


def run_in_bash(options, script, address):
    environment = {**os.environ, "TRIPTYCH_SERVER": address,
                   "PATH": f"{options.python}:{options.bin}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=options.work,
                           env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    check(ended.returncode == 0, f"{script}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def run(options, address):
    blocks = commands()
    check(len(blocks) == 2, f"{len(blocks)} blocks of commands in the README; expected: 2")
    stubs, examples = blocks
    generate, score, statistics = examples.strip().splitlines()

    def example(command):
        return run_in_bash(options, stubs + command, address)

    def triptych(command):
        return run_in_bash(options, "triptych " + command, address)

    text = triptych("generate --quiet --temperature 0 -n 60 --model shakespeare-mla 'KING HENRY:'")
    check(example(generate) == text and len(text) > 20, "the text differs from the C++ client's")
    scores = json.loads(triptych("score --json --lines --model shakespeare-mla <<< '"
                                 + "\n".join(TEXTS) + "'"))["results"]
    expected = "".join(f"{result['logLikelihood']:.3f}  {result['scoredTokens']}  {text}\n"
                       for result, text in zip(scores, TEXTS))
    check(example(score) == expected, f"the scores differ from the C++ client's: {expected}")
    stats = json.loads(triptych("kv --json"))["models"][0]
    expected = (f"shakespeare-mla: pool {stats['poolBytes']}, allocated {stats.get('allocatedBytes', 0)}, "
                f"evictable {stats['evictableBytes']}, {stats['bytesPerPosition']} per position\n")
    check(example(statistics) == expected, f"the statistics differ from the C++ client's: {expected}")
    # The output of an error.
    ended = subprocess.run(["bash", "-c", stubs + "python3 client/python/score.py none a"],
                           cwd=options.work, capture_output=True, text=True, timeout=TIMEOUT,
                           env={**os.environ, "TRIPTYCH_SERVER": address,
                                "PATH": f"{options.python}:{os.environ['PATH']}"})
    check(ended.returncode == 1 and ended.stderr.startswith("NOT_FOUND: "), ended.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True)
    parser.add_argument("--bin", required=True, help="folder of triptych and triptych-server")
    parser.add_argument("--python", required=True)
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    for folder in ("proto", "client"):
        link = os.path.join(options.work, folder)
        if not os.path.islink(link):
            os.symlink(os.path.join(ROOT, folder), link)
    server, address = start_server(options.bin)
    try:
        run(options, address)
        server.send_signal(signal.SIGTERM)
        server.stdout.read()
        check(server.wait(timeout=TIMEOUT) == 0, "the server's exit status is not 0")
    finally:
        server.kill()
    print("python examples: equal to the C++ client's output")


if __name__ == "__main__":
    main()
