"""Servers of the tests of this folder."""

import re
import subprocess
import sys
import threading


def serve(program, *options):
    """Starts a server with HTTP on free ports; returns it and its addresses of gRPC and HTTP."""
    server = subprocess.Popen(
        [program, *options, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, text=True)
    log = ""
    for line in server.stdout:
        log += line
        if found := re.search(r" listening on (\S+)", line):
            # So that the pipe of the log does not fill.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, found[1], re.search(r" HTTP on (\S+)", log)[1]
    sys.exit("the server did not start:\n" + log)
