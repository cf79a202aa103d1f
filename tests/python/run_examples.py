#!/usr/bin/env python3
"""Runs the commands of client/python/README.md as they stand there, and holds what the examples print
against what `triptych` says.

    tests/python/run_examples.py --work DIR --bin DIR --python DIR

The commands run in --work, where proto and client are links and build/python comes to lie, with
--python, the folder of a python3 that has gRPC, first in the path.
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
    """Of the README, but those that install packages."""
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
    check(len(blocks) == 2, f"{len(blocks)} blocks of commands in the README")
    stubs, examples = blocks
    generate, score, statistics = examples.strip().splitlines()

    def example(command):
        return run_in_bash(options, stubs + command, address)

    def triptych(command):
        return run_in_bash(options, "triptych " + command, address)

    text = triptych("generate --quiet --temperature 0 -n 60 --model shakespeare-mla 'KING HENRY:'")
    check(example(generate) == text and len(text) > 20, "another text than the C++ client's")
    scores = json.loads(triptych("score --json --lines --model shakespeare-mla <<< '"
                                 + "\n".join(TEXTS) + "'"))["results"]
    expected = "".join(f"{result['logLikelihood']:.3f}  {result['scoredTokens']}  {text}\n"
                       for result, text in zip(scores, TEXTS))
    check(example(score) == expected, f"other scores than the C++ client's: {expected}")
    stats = json.loads(triptych("kv --json"))["models"][0]
    expected = (f"shakespeare-mla: {stats['poolBytes']} of which {stats.get('allocatedBytes', 0)} "
                f"allocated, {stats['evictableBytes']} cached, {stats['bytesPerPosition']} a position\n")
    check(example(statistics) == expected, f"other statistics than the C++ client's: {expected}")
    # What an error looks like.
    ended = subprocess.run(["bash", "-c", stubs + "python3 client/python/score.py none a"],
                           cwd=options.work, capture_output=True, text=True, timeout=TIMEOUT,
                           env={**os.environ, "TRIPTYCH_SERVER": address,
                                "PATH": f"{options.python}:{os.environ['PATH']}"})
    check(ended.returncode == 1 and ended.stderr.startswith("NOT_FOUND: "), ended.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True)
    parser.add_argument("--bin", required=True, help="where triptych and triptych-server are")
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
        check(server.wait(timeout=TIMEOUT) == 0, "the server did not end well")
    finally:
        server.kill()
    print("python examples: as the C++ client says")


if __name__ == "__main__":
    main()
