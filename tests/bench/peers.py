"""Shared code of the benchmarks: programs, saved random weights, alternating runs."""

import json
import os
import statistics
import struct
import subprocess
import sys

ELEMENT_BYTES = {"F32": 4, "BF16": 2}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFAULT_BENCH = os.path.join(REPOSITORY, "build", "release", "bin", "triptych-bench")
# Shapes of random models. `groups` applies to GQA. The last three are published shapes.
MODELS = {
    "110m": dict(hidden_size=768, heads=12, groups=4, layers=12, intermediate_size=2048,
                 vocab_size=32000),
    "small": dict(hidden_size=256, heads=8, groups=4, layers=8, intermediate_size=704,
                  vocab_size=4096),
    "135m": dict(hidden_size=576, heads=9, groups=3, layers=30, intermediate_size=1536,
                 vocab_size=49152),
    "0.5b": dict(hidden_size=896, heads=14, groups=2, layers=24, intermediate_size=4864,
                 vocab_size=151936),
    "1.1b": dict(hidden_size=2048, heads=32, groups=4, layers=22, intermediate_size=5632,
                 vocab_size=32000),
}
MLA = dict(rank=128, rope_head_dim=32, latent_norm=True)


def fail(message):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def choices(flag, allowed):
    """An argparse type: comma-separated names, each one of `allowed`."""

    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                fail(f"{flag}: {name!r} is not one of {', '.join(allowed)}")
        return names

    return parse


def program(path, flag):
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        fail(f"{flag}: {path} is not a program")
    return os.path.abspath(path)


def add_instruction_set(parser):
    parser.add_argument("--instruction-set", metavar="NAME",
                        help="instruction set of Triptych's kernels, such as AVX2 [this machine's best]")


def on_instruction_set(path, options):
    """A command and its first flags, restricted to --instruction-set."""
    return [path, *(["--instruction-set", options.instruction_set]
                    if options.instruction_set else [])]


def run(command, env=None, cwd=None):
    """Runs a program; returns (stdout, stderr). Exits if the program fails."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL,
                          capture_output=True, env={**os.environ, **(env or {})}, cwd=cwd)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{err[-2000:]}")
    return out, err


def triptych(bench, *flags):
    return json.loads(run([bench, *flags])[0])


def save_random(bench, directory, name, kind, dtype, positions):
    """Saves one of MODELS with random weights; `bench` is triptych-bench and its first flags."""
    shape = dict(MODELS[name])
    groups = shape.pop("groups")
    shape |= {"gqa": dict(groups=groups), "mla": MLA}.get(kind, {})
    flags = ["--attention", kind, "--dtype", dtype, "--tied-embeddings"]
    for flag, value in shape.items():
        flags.append("--" + flag.replace("_", "-"))
        if value is not True:
            flags.append(value)
    triptych(*bench, "--save", directory, *flags, "--context", positions, "--prompt", 0,
             "--generate", 0)
    return Checkpoint(directory)


class Checkpoint:
    """A saved model: its config, and its tensors as bytes, row by row."""

    def __init__(self, directory):
        with open(os.path.join(directory, "config.json")) as file:
            self.config = json.load(file)
        with open(os.path.join(directory, "model.safetensors"), "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self._entries = json.loads(file.read(length))
            self._data = file.read()
        self._entries.pop("__metadata__", None)

    def __iter__(self):
        return iter(self._entries)

    def __contains__(self, name):
        return name in self._entries

    def dtype(self, name):
        return self._entries[name]["dtype"]

    def shape(self, name):
        return self._entries[name]["shape"]

    def data(self, name):
        first, last = self._entries[name]["data_offsets"]
        return self._data[first:last]

    def with_contiguous_heads(self, name):
        """data(name), reordered so that query head h reads key/value head h // (H/G), not h mod G."""
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        shared = heads // groups
        data = self.data(name)
        if shared == 1 or not name.endswith(("q_proj.weight", "o_proj.weight")):
            return data
        order = [h % shared * groups + h // shared for h in range(heads)]
        rows, columns = self.shape(name)
        row_bytes = columns * ELEMENT_BYTES[self.dtype(name)]
        if name.endswith("q_proj.weight"):  # heads are rows
            return _reorder(data, rows // heads * row_bytes, order)
        return b"".join(_reorder(data[row * row_bytes:(row + 1) * row_bytes],
                                 row_bytes // heads, order) for row in range(rows))


def _reorder(data, size, order):
    return b"".join(data[i * size:(i + 1) * size] for i in order)


def alternate(rounds, ours, theirs):
    """Measures both in turn; returns tokens per second: [(ours, theirs), ...]."""
    return [(ours(), theirs()) for _ in range(rounds)]


HEADING = (f"{'tokens/s, median':<24} {'triptych':>10} {'peer':>10}   "
           f"{'ratio':>6} {'from':>6} {'to':>6} {'of bests':>9}")


def print_ratio(name, pairs, note=""):
    """Prints the median, smallest and largest ratio, and the ratio of the best runs, which other load on
    the machine disturbs least."""
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = zip(*pairs)
    print(f"{name:<24} {statistics.median(ours):>10,.1f} {statistics.median(theirs):>10,.1f}   "
          f"{statistics.median(ratios):>6.2f} {min(ratios):>6.2f} {max(ratios):>6.2f} "
          f"{max(ours) / max(theirs):>9.2f}   {note}".rstrip(), flush=True)


def print_agreement(ours, theirs):
    """Prints whether both continue a prompt alike; the peer may have ended early."""
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    compared = min(len(ours), len(theirs))
    if compared == 0:
        print("greedy tokens: the peer printed none")
    elif same == compared:
        print(f"greedy tokens: all {compared} agree, in float32")
    else:
        print(f"greedy tokens: DIFFERENT at number {same + 1} of {compared}: "
              f"{ours[same]} and {theirs[same]}")
    return compared > 0 and same == compared
