#!/usr/bin/python3
"""Tests docs/plan.html in headless Chromium, from disk: its numbers are those of triptych-model.

page_test.py [--build FOLDER] [--screenshots FOLDER] [-v] [TEST...]

FOLDER contains triptych-model [build/release/bin]. With --screenshots, runs no tests and writes
pictures of the page, light.png and dark.png. Exits with 77 if Debian's chromium, chromium-driver or
python3-selenium is missing.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[3]
PAGE = (TOP / "docs/plan.html").as_uri()
CONFIGS = sorted((TOP / "tests/tools/plan/configs").glob("*.json"))
MEMORY, CONTEXT = 640 << 30, 4000

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
except ImportError:
    MISSING = ["python3-selenium"]

build = TOP / "build/release/bin"


def open_browser():
    options = Options()
    options.binary_location = shutil.which("chromium")
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--no-proxy-server", "--hide-scrollbars", "--lang=en-US", "--window-size=1200,1000",
                 "--host-resolver-rules=MAP * ~NOTFOUND"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # the sandbox does not work as root
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.get(PAGE)
    return driver


def program(file, devices=1):
    command = [build / "triptych-model", "plan", "--model", file, "--json", "--memory", str(MEMORY),
               "--context", str(CONTEXT), "--tensor-parallel", str(devices), "--kv-cache-dtype", "bfloat16"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else result.stderr


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = open_browser()
        cls.scratch = tempfile.TemporaryDirectory()
        cls.directory = pathlib.Path(cls.scratch.name)

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.scratch.cleanup()

    def setUp(self):
        self.driver.get(PAGE)

    def tearDown(self):
        self.assertEqual([entry for entry in self.driver.get_log("browser")], [])

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def plan(self, text, devices=1):
        """The page's numbers, or its refusal."""
        return self.js("""
            try {
              const {whole, cached, asMha, bytes, users, ...rest} = plan(arguments[0], arguments[1]);
              return rest;
            } catch (e) { return e.message; }""",
                       text, {"memory": MEMORY, "context": CONTEXT, "devices": devices, "cache": "bfloat16"})

    def set(self, identifier, value):
        self.js("""
            at(arguments[0]).value = arguments[1];
            at(arguments[0]).dispatchEvent(new Event("input", {bubbles: true}));""", identifier, value)

    def text(self, identifier):
        return self.js("return at(arguments[0]).innerText", identifier)

    def check(self, file, page, program_):
        self.assertIsInstance(page, dict, file)
        self.assertIsInstance(program_, dict, file)
        for member in ("model_type", "context", "devices"):
            self.assertEqual(page[member], program_[member], f"{file}: {member}")
        # The program adds what several devices share.
        facts = program_["facts"] if page["devices"] == 1 else program_["facts"][:len(page["facts"])]
        self.assertEqual(page["facts"], facts, file)
        # CACHE_FORMATS, in the order of the program.
        self.assertEqual(page["each_device"], program_["each_device"], file)
        if program_["served"]:
            # The program counts norms and biases, too.
            tolerance = 0.002
        else:
            tolerance = 0
            self.assertEqual(page["unknown"], program_["unknown"][:len(page["unknown"])], file)
        page, program_ = page["all_devices"], program_["all_devices"]
        if program_["parameters"] is None:
            self.assertIsNone(page["parameters"], file)
            return
        for member in ("parameters", "active_parameters"):
            self.assertAlmostEqual(page[member], program_[member], delta=tolerance * program_[member], msg=file)
        for own, other in zip(page["weights"], program_["weights"], strict=True):
            self.assertEqual(own["dtype"], other["dtype"])
            self.assertAlmostEqual(own["bytes"], other["bytes"], delta=tolerance * other["bytes"], msg=file)
            self.assertAlmostEqual(own["sequences"], other["sequences"],
                                   delta=tolerance * other["sequences"] + (1 if tolerance else 0), msg=file)

    def test_numbers_are_the_programs(self):
        self.assertGreaterEqual(len(CONFIGS), 20)
        for file in CONFIGS:
            text = file.read_text()
            self.check(file.name, self.plan(text), program(file))
            for devices in (2, 8):
                page, other = self.plan(text, devices), program(file, devices)
                if isinstance(other, str):  # refused: by the page, too
                    self.assertIn(page, other, file.name)
                else:
                    self.check(file.name, page, other)

    def test_a_converted_model_has_the_programs_inverse_norms(self):
        config = {"model_type": "triptych", "num_hidden_layers": 3, "hidden_size": 512, "num_attention_heads": 8,
                  "vocab_size": 4096, "intermediate_size": 2048, "max_position_embeddings": CONTEXT,
                  "num_key_value_heads": 4, "head_dim": 8, "attention": "mla", "kv_lora_rank": 21,
                  "qk_rope_head_dim": 4, "qk_norm": True, "position_embedding": "rope", "norm": "rms_norm",
                  "mlp": "swiglu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
        for norms, changes in ((4, {}), (1, {"num_key_value_heads": 1}), (0, {"qk_norm": False,
                                                                           "num_key_value_heads": 8})):
            file = self.directory / "converted.json"
            file.write_text(json.dumps({**config, **changes}))
            page = self.plan(file.read_text())
            self.check(f"{norms} norms", page, program(file))
            self.assertEqual(page["each_device"]["kv_cache"][0]["bytes_per_position"], 3 * (25 + norms) * 4)

    def test_kinds_are_the_programs(self):
        normed = 0
        for file in CONFIGS:
            text = file.read_text()
            shape = self.js("return outlineOf(arguments[0]).shape", text)
            if shape["latent"] or not program(file)["served"]:
                continue
            rope = 2 * -(-shape["key"] // 4)
            result = subprocess.run(
                [build / "triptych-model", "plan", "--model", file, "--memory", str(MEMORY), "--context",
                 str(CONTEXT), "--machine", "m4-max", "--groups", "1", "--rank", "64", "--kv-cache-dtype", "int4"],
                capture_output=True, text=True, check=True)
            self.assertIn(f"decoupled keys of width {rope} ", result.stdout)
            row = next(line for line in result.stdout.splitlines() if line.startswith("bytes per position "))
            self.set("config", text)
            for field, value in (("groups", 1), ("rank", 64), ("rope", rope), ("cache", "int4")):
                self.set(field, value)
            self.assertEqual(self.text("error"), "", file.name)
            bars = [line.split(" bytes")[0] for line in self.text("bars").splitlines() if " bytes" in line]
            self.assertEqual(bars[1:], row.split()[3:], file.name)
            norms = f"{shape['inverseNorms']} norm" if shape["inverseNorms"] else "norm"
            self.assertEqual(norms in self.text("bars"), shape["inverseNorms"] > 0, file.name)
            normed += shape["inverseNorms"] > 0
        self.assertGreaterEqual(normed, 2)

    def test_refusals_are_the_programs(self):
        base = {"num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 9,
                "intermediate_size": 8}
        for fields in ({"num_attention_heads": 0}, {"num_hidden_layers": 10**18}, {"sliding_window": -1},
                       {"num_attention_heads": 3}, {"num_key_value_heads": 4}, {"layer_types": ["mamba"]},
                       {"hybrid_override_pattern": "M"}, {"compress_ratios": [4]}, {"is_encoder_decoder": True},
                       {"num_experts": 2, "num_experts_per_tok": 3}, {"hidden_size": "wide"},
                       {"num_kv_shared_layers": 4}, {"attn_layer_indices": [4]}, {"cli_factor": 2},
                       {"zero_expert_num": 1}, {"model_type": "longcat_flash", "num_layers": 4},
                       {"moe": {"num_experts": 2, "num_experts_per_tok": 3}}):
            config = self.directory / "config.json"
            config.write_text(json.dumps({**base, **fields}))
            refusal = program(config)
            self.assertIsInstance(refusal, str, fields)
            page = self.plan(config.read_text())
            self.assertIsInstance(page, str, fields)
            self.assertIn(page.removeprefix("config.json: "), refusal)

    def test_a_pasted_config_shows_bytes_and_users(self):
        self.set("config", (TOP / "tests/tools/plan/configs/deepseek-v2-lite.json").read_text())
        self.assertEqual(self.text("headline"), "31,104 bytes a position")
        self.assertEqual(self.text("formula"), "31,104 bytes a position = 27 layers x (512 + 64) x 2 bytes")
        bars = self.text("bars")
        self.assertIn("MHA, 16 heads", bars)
        self.assertIn("276,480 bytes", bars)  # 27 x 16 x (192 + 128) x 2
        self.assertIn("MLA, 512 + 64", bars)
        before = self.text("subline")
        self.set("memory", 60)
        self.assertNotEqual(self.text("subline"), before)
        self.set("cache", "int8")
        self.assertEqual(self.text("headline"), "16,524 bytes a position")  # 27 x 34 x 18
        self.set("groups", 4)
        self.assertIn("GQA, 4 groups", self.text("bars"))
        self.set("groups", 3)
        self.assertIn("groups is 3; allowed: a divisor of 16 heads", self.text("error"))

    def test_what_is_no_config_is_one_line(self):
        for text in ("", "{", "[]", "7", "null", '{"num_hidden_layers": 4}', "[" * 100_000, '{"model_type": 7}',
                     '{"text_config": 7}', '{"__proto__": {"num_hidden_layers": 4}}'):
            self.set("config", text)
            self.assertRegex(self.text("error"), r"^config\.json: [^\n]+$", text[:40])
            self.assertTrue(self.js("return at('result').hidden"))
        self.set("config", json.dumps({"model_type": "<img src=x onerror=alert(1)>", "num_hidden_layers": 4,
                                       "hidden_size": 16, "num_attention_heads": 2,
                                       "mamba_<img src=x>": 1}))
        self.assertEqual(self.text("error"), "")
        self.assertEqual(self.js("return document.images.length"), 0)

    def test_every_example_fits_the_page(self):
        for width in (360, 1200):
            self.driver.set_window_size(width, 900)
            for name in self.js("return Object.keys(EXAMPLES)"):
                self.js("at('example').value = arguments[0]; at('example').dispatchEvent("
                        "new Event('change', {bubbles: true}))", name)
                self.assertEqual(self.text("error"), "")
                self.assertTrue(self.js(
                    "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name)


def screenshots(folder):
    driver = open_browser()
    try:
        for scheme in ("light", "dark"):
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            driver.save_screenshot(str(pathlib.Path(folder, f"{scheme}.png")))
    finally:
        driver.quit()


def main():
    global build
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=build)
    parser.add_argument("--screenshots", metavar="FOLDER")
    arguments, rest = parser.parse_known_args()
    build = arguments.build
    if MISSING:
        print(f"skipped plan_page_test: {', '.join(MISSING)} is missing")
        return 77
    if arguments.screenshots:
        screenshots(arguments.screenshots)
        return 0
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
