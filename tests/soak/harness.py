"""Harness of the soak tests: server processes, with or without TLS and tokens, and `triptych bench`
processes as load."""

import argparse
import hashlib
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODELS = ["mha", "gqa", "mla"]
# gRPC codes, by which `triptych bench --json` reports errors.
CANCELLED, RESOURCE_EXHAUSTED, UNAVAILABLE = 1, 8, 14
START_TIMEOUT = 120  # seconds; sanitizers and busy machines are slow
END_TIMEOUT = 120


class Lost(Exception):
    """A guarantee that did not hold."""


def check(holds, what):
    if not holds:
        raise Lost(what)


def wait_for(condition, what, timeout=60):
    """Polls `condition` until its value is true; returns the value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        check(time.monotonic() < end, f"{what}: not within {timeout} s")
        time.sleep(0.05)
    return value


def parse_arguments(doc, **defaults):
    """--bin, --long and an option for each of `defaults`, whose values are (short, long, help)."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"),
                        help="folder of triptych and triptych-server")
    parser.add_argument("--long", action="store_true", help="long run, for published figures")
    for name, (short, long, text) in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(long),
                            help=f"{text} [{short}, {long} with --long]")
    options = parser.parse_args()
    for name, (short, long, _) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, long if options.long else short)
    return options


def run_checked(name, body):
    """Runs a script's body and exits: with 0, or with 1 and a line with the broken guarantee."""
    began = time.monotonic()
    try:
        line = body()
    except Lost as lost:
        raise SystemExit(f"{name}: LOST: {lost}") from None
    print(f"{name}: {line}; nothing lost, in {time.monotonic() - began:.0f} s", flush=True)


def lasting_port():
    """A free port for a server that restarts on it: below the range from which the system chooses ports, so
    that no other process gets it in the meantime."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        end = int(file.read().split()[0])
    check(end > 2048, f"the system's range of ports begins at {end}; expected: above 2048")
    for _ in range(1000):
        with socket.socket() as probe:
            port = random.randrange(1024, end)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError as error:
                why = error
    raise Lost(f"no port is free: {why}")


class Site:
    """A directory with a certificate authority, a server's certificate and tokens. Without client names,
    servers have neither TLS nor tokens: they serve only this machine."""

    def __init__(self, programs, clients=()):
        self.directory = tempfile.TemporaryDirectory(prefix="triptych-soak-")
        self.programs = programs
        self.tokens = {}
        self.processes = []
        if not clients:
            return
        self._certify()
        lines = []
        everyone = {"operator": "admin", **{name: "inference,statistics" for name in clients}}
        for name, scopes in everyone.items():
            token = secrets.token_hex(32)
            self.tokens[name] = token
            lines.append(f"{name} {scopes} {hashlib.sha256(token.encode()).hexdigest()}\n")
        with open(self.path("tokens"), "w", encoding="ascii") as file:
            file.writelines(lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:  # processes left after a failure
            if process.poll() is None:
                process.kill()
                process.wait()
        self.directory.cleanup()

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def program(self, name):
        return os.path.join(self.programs, name)

    def client(self, address, name, *arguments):
        """`triptych` with the token of `name`."""
        command = [self.program("triptych"), *arguments, "--server", address]
        environment = dict(os.environ)
        if self.tokens:
            command += ["--ca", self.path("ca.crt")]
            environment["TRIPTYCH_TOKEN"] = self.tokens[name]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def _certify(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        with open(self.path("extensions"), "w", encoding="ascii") as file:
            file.write("subjectAltName=IP:127.0.0.1\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *key, "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"),
                "-days", "2", "-subj", "/CN=soak authority")
        openssl("req", *key, "-keyout", self.path("server.key"), "-out", self.path("server.csr"),
                "-subj", "/CN=server")
        openssl("x509", "-req", "-in", self.path("server.csr"), "-CA", self.path("ca.crt"),
                "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile",
                self.path("extensions"), "-out", self.path("server.crt"))


class Server:
    """`triptych-server` with the site's certificate and tokens, if any. `pools`: cache bytes of each
    model; `within` runs in the child before exec."""

    def __init__(self, site, *arguments, models=MODELS, pools=None, port=0, within=None,
                 await_start=True):
        self.site = site
        self.log_file = site.path(f"log-{secrets.token_hex(4)}")
        command = [site.program("triptych-server"), "--listen", f"127.0.0.1:{port}"]
        if site.tokens:
            command += ["--tls-cert", site.path("server.crt"), "--tls-key", site.path("server.key"),
                        "--tokens", site.path("tokens")]
        for model in models:
            pool = f",kv-cache-bytes={pools[model]}" if pools else ""
            command += ["--model", f"{model}={ROOT}/models/shakespeare-{model}{pool}"]
        with open(self.log_file, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log,
                                            preexec_fn=within)
        site.processes.append(self.process)
        self.address = None
        if await_start:
            self.await_start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def await_start(self):
        def address():
            found = re.search(r"listening on (\S+)", self.log())
            check(found or self.process.poll() is None, f"the server did not start: {self.log()}")
            return found and found.group(1)
        self.address = wait_for(address, "the server's start", START_TIMEOUT)

    def log(self):
        with open(self.log_file, encoding="utf-8") as file:
            return file.read()

    def end(self):
        """Sends SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=END_TIMEOUT)

    def status(self, name):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))

    def megabytes(self):
        return self.status("VmRSS") / 1024

    def threads(self):
        """Number of threads without gRPC's timer threads: gRPC keeps as many of those as timers ever ran at
        once."""
        return self.status("Threads") - self.timer_threads()

    def timer_threads(self):
        def name(thread):
            try:
                with open(f"/proc/{self.process.pid}/task/{thread}/comm", encoding="ascii") as file:
                    return file.read().strip()
            except OSError:  # the thread has just ended
                return ""
        threads = os.listdir(f"/proc/{self.process.pid}/task")
        return sum(name(thread) == "grpc_global_tim" for thread in threads)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def client(self, name, *arguments):
        """`triptych` with the token of `name`."""
        return self.site.client(self.address, name, *arguments)

    def stats(self):
        """{model: {field: number}} of pools and request counters."""
        for _ in range(5):  # on a busy machine, a connection can exceed gRPC's timeout
            output, error = self.client("operator", "kv", "--json", "--timeout", "60").communicate()
            if output:
                break
        check(output, f"no statistics: {error}")
        def numbers(fields):
            return {re.sub("[A-Z]", lambda c: "_" + c.group().lower(), name): int(value)
                    for name, value in fields.items()
                    if re.fullmatch(r"-?\d+", str(value))}
        return {model["model"]: {**numbers(model), **numbers(model["requests"])}
                for model in json.loads(output)["models"]}

    def await_idle(self, timeout=END_TIMEOUT):
        """Waits until no request runs or waits; returns the statistics."""
        def idle():
            stats = self.stats()
            live = sum(m["running_sequences"] + m["waiting_sequences"] for m in stats.values())
            return stats if live == 0 else None
        return wait_for(idle, "an idle server", timeout)


class Bench:
    """`triptych bench` as a process. A flag whose value is True takes none."""

    def __init__(self, server, name, model, **flags):
        arguments = ["bench", "--model", model, "--json"]
        for flag, value in flags.items():
            arguments += ["--" + flag.replace("_", "-"), *([] if value is True else [str(value)])]
        self.process = server.client(name, *arguments)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def results(self, timeout=END_TIMEOUT):
        """Waits for the process to end by itself; returns its measurements."""
        try:
            output, error = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Lost(f"a client still runs after {timeout} s") from None
        check(output, f"a client printed no results: {error.strip()}")
        return json.loads(output)


def errors_by_code(results):
    return {error["code"]: error["count"] for error in results["errors"]}


def first_errors(results):
    return "; ".join(error["first"] for error in results["errors"])


def check_pools(stats):
    """Checks that no block is allocated, and that bytes and request counts add up."""
    for model, s in stats.items():
        check(s["allocated_bytes"] == 0 and s["positions"] == 0,
              f"{model}: {s['allocated_bytes']} bytes are still allocated")
        check(s["evictable_bytes"] + s["free_bytes"] == s["pool_bytes"],
              f"{model}: {s['evictable_bytes']} + {s['free_bytes']} bytes are not {s['pool_bytes']}")
        check(s["evictable_blocks"] + s["free_blocks"] == s["total_blocks"],
              f"{model}: {s['evictable_blocks']} + {s['free_blocks']} blocks are not "
              f"{s['total_blocks']}")
        ended = s["finished"] + s["cancelled"] + s["failed"]
        # Rejected after they were accepted, because they waited too long.
        late = s["accepted"] - ended
        check(0 <= late <= s["refused"],
              f"{model}: {s['accepted']} requests were accepted, {ended} ended, {s['refused']} "
              "were rejected")
        check(s["failed"] == 0, f"{model}: {s['failed']} requests failed")


def total(stats, field):
    return sum(model[field] for model in stats.values())


def slope(points):
    """Slope of the least-squares line through (x, y)."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
