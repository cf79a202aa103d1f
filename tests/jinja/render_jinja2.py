"""Renders templates with Python's jinja2, in the environment of the library transformers.

Reads and writes lines as render.cc does, without "own" in the answers. Exits with 77 without jinja2.
"""
import datetime
import functools
import json
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """Blocks whose tokens a training would count."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


@functools.lru_cache(maxsize=1)
def compiled(text):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(text)


def render(line):
    now = datetime.datetime.fromtimestamp(line.get("now", 0))
    variables = {**line["variables"], **line.get("own", {}), "strftime_now": now.strftime}
    try:
        return {"text": compiled(line["template"]).render(variables)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


for text in sys.stdin:
    print(json.dumps(render(json.loads(text))))
