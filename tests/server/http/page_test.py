#!/usr/bin/python3
"""Tests the web page in headless Chromium, on a real server with the shipped models.

page_test.py [--build FOLDER] [--screenshot FILE] [-v] [TEST...]

FOLDER contains triptych-server and triptych [build/release/bin]. With --screenshot, runs no tests and
writes a picture of the page under load. Exits with 77 if Debian's chromium, chromium-driver or
python3-selenium is missing.
"""
import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parents[3]
MODELS = ["shakespeare-mha", "shakespeare-gqa", "shakespeare-mla"]
FOREVER = 120  # seconds; a test that reaches it has failed

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait
    MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
except ImportError:
    MISSING = ["python3-selenium"]

build = TOP / "build/release/bin"


class Server:
    """triptych-server with the shipped models. Leaving the block stops it."""

    def __init__(self, *options):
        self.directory = tempfile.TemporaryDirectory()
        self.log = pathlib.Path(self.directory.name, "log")
        command = [build / "triptych-server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                   "--kv-cache-bytes", "24MiB", *options]
        for name in MODELS:
            command += ["--model", f"{name}={TOP / 'models' / name}"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.loads = []

    def __enter__(self):
        # Until the log has the address, after loading.
        while not (found := re.search(r" listening on (\S+)", self.log.read_text())):
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        self.grpc = found[1]
        self.url = "http://" + re.search(r" HTTP on (\S+)", self.log.read_text())[1] + "/"
        return self

    def __exit__(self, *_):
        self.unload()
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()

    def client(self, *arguments):
        return subprocess.run([build / "triptych", "--server", self.grpc, *arguments], check=True,
                              capture_output=True, text=True).stdout

    def stats(self):
        return json.loads(self.client("kv", "--json"))

    def load(self, models=MODELS, token="", concurrency=8):
        """Keeps requests with a shared prefix running on each model until unload()."""
        environment = {**os.environ, "TRIPTYCH_TOKEN": token}
        for name in models:
            self.loads.append(subprocess.Popen(
                [build / "triptych", "--server", self.grpc, "bench", "--model", name,
                 "--concurrency", str(concurrency), "--requests", "1000000000",
                 "--prompt-tokens", "30:120", "--output-tokens", "150:300",
                 "--shared-prefix-tokens", "64", "--prefixes", "3"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment))

    def unload(self):
        for load in self.loads:
            load.kill()
        for load in self.loads:
            load.wait()
        self.loads = []


class Browser:
    """A page in headless Chromium, which can connect only to this machine."""

    def __init__(self, width=1280, height=900):
        options = Options()
        options.binary_location = shutil.which("chromium")
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update",
                     "--disable-sync", "--no-proxy-server", "--hide-scrollbars", "--lang=en-US",
                     "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # the sandbox does not work as root
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = Service(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.resize(width, height)

    def resize(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def cdp(self, method, parameters):
        return self.driver.execute_cdp_cmd(method, parameters)

    def scheme(self, name):
        self.cdp("Emulation.setEmulatedMedia",
                 {"features": [{"name": "prefers-color-scheme", "value": name},
                               {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def until(self, condition, message=""):
        """Waits until a function's value is true, and returns it."""
        return WebDriverWait(self.driver, FOREVER, poll_frequency=0.05).until(
            lambda _: condition(), message)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def focused(self):
        return self.driver.switch_to.active_element

    def open(self, url):
        self.driver.get(url)

    def until_live(self):
        self.until(lambda: self.text("#state") == "live" and self.cards())

    def cards(self):
        """The contents of the models' cards by model name: figures with their exact values."""
        return {card["name"]: card for card in self.js("""
          const figures = (root) => Object.fromEntries([...root.querySelectorAll("data")].map(
              (data) => [data.dataset.f, {value: data.value, text: data.textContent}]));
          return [...document.querySelectorAll("#models > section")].map((card) => ({
            name: card.querySelector("[data-f=name]").textContent,
            kind: card.querySelector(".badge").textContent,
            uptime: Number(card.dataset.uptime),
            map: {...card.querySelector("canvas").dataset},
            figures: figures(card),
            rows: [...card.querySelectorAll(".sequences tbody tr")].map((row) => ({
              head: row.querySelector("th").textContent, ...figures(row)})),
            load: Object.fromEntries([...card.querySelectorAll(".load tr")].map(
                (row) => [row.dataset.model, Number(figures(row).load.value)])),
          }));""")}

    def answers(self):
        return {answer["name"]: answer for answer in self.js("""
          return [...document.querySelectorAll("#answers article")].map((answer) => ({
            name: answer.dataset.model,
            prompt: answer.querySelector(".prompt").textContent,
            text: answer.querySelector(".new").textContent,
            error: answer.querySelector(".error").textContent,
            figures: Object.fromEntries([...answer.querySelectorAll("data")].map(
                (data) => [data.dataset.f, data.value])),
          }));""")}

    def fill(self, selector, text):
        """Enters a text, which can contain line ends, as if it were typed."""
        self.js("arguments[0].value = arguments[1]", self.find(selector), text)

    def generate(self, prompt, tokens=40, temperature=0):
        self.fill("#prompt", prompt)
        self.fill("#max-tokens", str(tokens))
        self.fill("#temperature", str(temperature))
        self.find("#prompt").send_keys(Keys.CONTROL, Keys.ENTER)
        self.until(lambda: (self.text("#ask-state") or "").startswith("done"))
        return self.answers()

    def picture(self, file):
        size = self.cdp("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.cdp("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        pathlib.Path(file).write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def quit(self):
        self.driver.quit()


def camel(name):
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def seconds(duration):
    return float(duration.removesuffix("s"))


BYTES = ["pool_bytes", "used_bytes", "allocated_bytes", "shared_bytes", "evictable_bytes", "free_bytes",
         "peak_allocated_bytes"]
COUNTS = ["positions", "running_sequences", "waiting_sequences", "preemptions"]

# The contrast of every element with text of its own and its background, by the definitions of WCAG 2.
CONTRASTS = """
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return {r, g, b, a};
  };
  const over = (top, under) => {
    const mix = (name) => top[name] * top.a + under[name] * (1 - top.a);
    return {r: mix("r"), g: mix("g"), b: mix("b"), a: 1};
  };
  const luminance = ({r, g, b}) => {
    const [x, y, z] = [r, g, b].map((c) => c / 255 <= .04045 ? c / 255 / 12.92
                                                             : ((c / 255 + .055) / 1.055) ** 2.4);
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const behind = (element) => {
    if (!element) return {r: 255, g: 255, b: 255, a: 1};
    const colour = parse(getComputedStyle(element).backgroundColor);
    return colour.a === 1 ? colour : over(colour, behind(element.parentElement));
  };
  const ratio = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + .05) / (low + .05);
  };
  const seen = (element) => element.checkVisibility() && !element.closest(":disabled, .hidden");
  const texts = [], edges = [];
  for (const element of document.body.querySelectorAll("*")) {
    if (!seen(element)) continue;
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const style = getComputedStyle(element);
    if (own || element.matches("input, textarea")) {
      texts.push([element.outerHTML.slice(0, 80),
                  ratio(over(parse(style.color), behind(element)), behind(element))]);
    }
    if (element.matches("button, input, textarea")) {
      edges.push([element.outerHTML.slice(0, 80),
                  Math.max(ratio(parse(style.borderTopColor), behind(element.parentElement)),
                           ratio(behind(element), behind(element.parentElement)))]);
    }
  }
  // Colours of sequences, on the map and in the table.
  const probe = document.querySelector("#models .map").parentElement.appendChild(
      document.createElement("i"));
  for (const name of ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "other", "used"]) {
    probe.style.color = `var(--${name})`;
    edges.push([name, ratio(parse(getComputedStyle(probe).color), behind(probe))]);
  }
  probe.remove();
  return {texts, edges};
"""


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().__enter__()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.__exit__()

    def setUp(self):
        self.browser.resize(1280, 900)
        self.browser.scheme("light")
        self.browser.complaints()
        self.browser.open(self.server.url)
        self.browser.until_live()

    def tearDown(self):
        self.server.unload()

    def until_idle(self):
        def idle():
            models = self.server.stats()["models"]
            return all(m["runningSequences"] + m["waitingSequences"] == 0 for m in models)
        self.browser.until(idle)

    def expect_same_figures(self, stats, cards):
        for model in stats["models"]:
            card = cards[model["model"]]
            for name in BYTES + COUNTS:
                self.assertEqual(card["figures"][name]["value"], str(model[camel(name)]), name)

    def test_at_rest_the_page_says_what_grpc_says(self):
        self.server.load()
        self.browser.until(lambda: all(m["requests"]["finished"] not in ("0", "1")
                                       for m in self.server.stats()["models"]))
        self.server.unload()
        self.until_idle()
        stats = self.server.stats()
        after = seconds(stats["models"][0]["uptime"])
        cards = self.browser.until(
            lambda: (c := self.browser.cards())[MODELS[0]]["uptime"] > after and c)
        self.expect_same_figures(stats, cards)
        self.assertNotEqual(cards[MODELS[2]]["figures"]["evictable_bytes"]["value"], "0")
        self.assertEqual(self.browser.text("#version"), stats["serverVersion"])
        for name in ["pool", "used", "allocated", "evictable", "free"]:
            shown = self.browser.js("return document.querySelector(arguments[0]).value",
                                    f"#totals [data-f=total_{name}_bytes]")
            self.assertEqual(shown, stats[f"total{name.capitalize()}Bytes"])
        # With the same names.
        table = {line.split("  ")[0]: re.split(r"\s{2,}", line.strip())[1:]
                 for line in self.server.client("kv").splitlines()}
        for row, name in [("pool", "pool_bytes"), ("evictable", "evictable_bytes"),
                          ("free", "free_bytes"), ("peak allocated", "peak_allocated_bytes")]:
            self.assertEqual([cards[m]["figures"][name]["text"] for m in MODELS], table[row][:3])
        for model in stats["models"]:
            card = cards[model["model"]]
            self.assertEqual(card["kind"], model["model"].split("-")[1].upper())
            self.assertEqual(card["map"], {"allocated": "0", "shared": "0",
                                           "evictable": model["evictableBlocks"]})
            self.assertEqual(card["rows"], [])

    def test_memory_of_a_gpu(self):
        shown = "return [...document.querySelectorAll('.device')].map((part) => part.checkVisibility())"
        self.assertEqual(self.browser.js(shown), [False] * len(MODELS))
        script = self.browser.cdp("Page.addScriptToEvaluateOnNewDocument", {"source": """
          const real = window.fetch;
          window.fetch = async (path, options) => {
            const response = await real(path, options);
            if (!String(path).includes("v1/models")) return response;
            const answer = await response.json();
            Object.assign(answer.data[0], {
              device: "cuda:0, <i>GPU</i>",
              device_memory: {weight_bytes: 3 << 20, cache_bytes: 1536, workspace_bytes: 7}});
            return Response.json(answer);
          };"""})
        try:
            self.browser.open(self.server.url)
            self.browser.until_live()
            self.browser.until(lambda: any(self.browser.js(shown)))
            self.assertEqual(self.browser.js(shown), [True] + [False] * (len(MODELS) - 1))
            self.assertEqual(self.browser.text(".device [data-f=device]"), "cuda:0, <i>GPU</i>")
            figures = self.browser.cards()[self.browser.text("#models [data-f=name]")]["figures"]
            self.assertEqual({name: (figures[name]["value"], figures[name]["text"])
                              for name in ["weight_bytes", "cache_bytes", "workspace_bytes"]},
                             {"weight_bytes": ("3145728", "3.0 MiB"),
                              "cache_bytes": ("1536", "1.5 KiB"), "workspace_bytes": ("7", "7 B")})
        finally:
            self.browser.cdp("Page.removeScriptToEvaluateOnNewDocument", script)

    def test_under_load_all_figures_are_of_one_moment_and_add_up(self):
        self.server.load()
        def busy():
            stats = self.server.stats()
            return stats if all(model["runningSequences"] > 1 and
                                int(model["requests"]["finished"]) > 0
                                for model in stats["models"]) else None
        before = self.browser.until(busy)

        def shown():
            cards = self.browser.cards()
            for model in before["models"]:
                card = cards[model["model"]]
                if (card["uptime"] <= seconds(model["uptime"]) or len(card["rows"]) < 2 or
                        not card["figures"]["first"]["value"] or
                        not card["figures"]["rate"]["value"]):
                    return False
            return True
        self.browser.until(shown)
        self.browser.find("#pause").click()
        cards = self.browser.cards()
        after = self.server.stats()
        per_position = {m["model"]: int(m["bytesPerPosition"]) for m in after["models"]}
        for old, new in zip(before["models"], after["models"]):
            card = cards[old["model"]]
            figures = {name: float(figure["value"] or 0)
                       for name, figure in card["figures"].items() if name != "scale"}
            # Between the two gRPC answers.
            self.assertLess(seconds(old["uptime"]), card["uptime"])
            self.assertLess(card["uptime"], seconds(new["uptime"]))
            for name in ["preemptions", "peak_allocated_bytes"]:
                self.assertLessEqual(int(old[camel(name)]), figures[name])
                self.assertLessEqual(figures[name], int(new[camel(name)]))
            self.assertGreater(figures["rate"], 0)
            self.assertGreater(figures["first"], 0)
            # Figures of one moment.
            block = int(new["blockBytes"])
            self.assertEqual(figures["pool_bytes"], int(new["poolBytes"]))
            self.assertEqual(figures["allocated_bytes"] + figures["evictable_bytes"] +
                             figures["free_bytes"], figures["pool_bytes"])
            self.assertEqual(int(card["map"]["allocated"]) * block, figures["allocated_bytes"])
            self.assertEqual(int(card["map"]["shared"]) * block, figures["shared_bytes"])
            self.assertEqual(int(card["map"]["evictable"]) * block, figures["evictable_bytes"])
            self.assertEqual(figures["used_bytes"],
                             figures["positions"] * per_position[old["model"]])
            held = [float(row["allocated"]["value"]) for row in card["rows"]]
            shared = [float(row["shared"]["value"]) for row in card["rows"]]
            own = sum(held) - sum(shared)  # blocks of only one sequence; each shared block exists once
            self.assertEqual(own + figures["shared_bytes"], figures["allocated_bytes"])
            # The same positions in every model.
            self.assertEqual(card["load"], {name: figures["positions"] * size
                                            for name, size in per_position.items()})
        self.assertEqual(self.browser.text("#state"), "paused")
        self.browser.find("#pause").click()
        self.browser.until(lambda: self.browser.text("#state") == "live")
        self.assertEqual(self.browser.complaints(), [])

    def test_one_prompt_to_all_models(self):
        prompt = "ROMEO:\nWhat light is this"
        answers = self.browser.generate(prompt)
        self.assertEqual(list(answers), MODELS)
        for name, answer in answers.items():
            self.assertEqual(answer["prompt"], prompt)
            messages = [json.loads(line) for line in self.server.client(
                "generate", "--model", name, "--temperature", "0", "--max-new-tokens", "40",
                "--json", prompt).splitlines()]
            self.assertEqual(answer["text"], "".join(m["text"] for m in messages))
            usage = messages[-1]["completion"]["usage"]
            figures = answer["figures"]
            self.assertEqual(figures["tokens"], str(usage["generatedTokens"]))
            for figure in ["positions", "used_bytes", "allocated_bytes", "mha_used_bytes"]:
                self.assertEqual(figures[figure], usage["kvCache"][camel(figure)])
            self.assertGreater(float(figures["rate"]), 0)
            self.assertGreater(float(figures["first"]), 0)
        self.assertEqual(self.browser.text("#ask-state"), "done: 3 of 3 models")

    def test_what_is_left_empty_is_the_models_to_say(self):
        self.browser.js("""
          const fetch = window.fetch;
          window.asked = [];
          window.fetch = (path, options) => {
            if (options.body) window.asked.push(JSON.parse(options.body));
            return fetch(path, options);
          };""")
        self.assertEqual(self.browser.js("return document.getElementById('temperature').value"), "")
        self.browser.generate("ROMEO:", tokens=1, temperature="")
        asked = self.browser.js("return window.asked")
        self.assertEqual([request["max_tokens"] for request in asked], [1] * len(MODELS))
        for request in asked:
            self.assertNotIn("temperature", request)
            self.assertNotIn("seed", request)

    def test_what_cannot_be_generated_says_why(self):
        self.browser.fill("#max-tokens", "1000")
        self.browser.fill("#prompt", "x" * 600)
        self.browser.find("#generate").click()
        self.browser.until(lambda: self.browser.text("#ask-state") == "done: 0 of 3 models")
        for answer in self.browser.answers().values():
            self.assertIn("prompt", answer["error"])

    def test_text_stays_text(self):
        code = "document.title='owned'"
        prompt = f'<img src=x onerror="{code}"><script>{code}</script>'
        answers = self.browser.generate(prompt, tokens=8)
        for answer in answers.values():
            self.assertEqual(answer["prompt"], prompt)
        self.assertEqual(self.browser.js(
            "return document.querySelectorAll('#answers img, #answers script').length"), 0)
        # Even if it were inserted as markup, it would not run.
        self.browser.js("document.querySelector('#answers .new').innerHTML = arguments[0]", prompt)
        self.browser.until(lambda: any("Content Security Policy" in line
                                       for line in self.browser.complaints()))
        self.assertEqual(self.browser.driver.title, "Triptych")

    def test_contrast(self):
        self.server.load()
        self.browser.generate("ROMEO:", tokens=8)
        self.browser.find("#token-button").click()
        self.browser.until(lambda: all(card["rows"] for card in self.browser.cards().values()))
        for scheme in ["light", "dark"]:
            self.browser.scheme(scheme)
            found = self.browser.js(CONTRASTS)
            self.assertGreater(len(found["texts"]), 50)
            self.assertGreater(len(found["edges"]), 15)
            self.assertEqual([t for t in found["texts"] if t[1] < 4.5], [], scheme)
            self.assertEqual([e for e in found["edges"] if e[1] < 3], [], scheme)

    def test_keyboard(self):
        """Tab reaches everything in document order, with visible focus."""
        self.browser.generate("ROMEO:", tokens=8)
        self.browser.js("document.getElementById('pause').focus({focusVisible: true})")
        reached = []
        while True:
            one = self.browser.js("""
              const at = document.activeElement;
              const style = getComputedStyle(at);
              return at === document.body ? null : {
                name: at.id || at.className, outline: style.outlineStyle,
                width: parseFloat(style.outlineWidth)};""")
            if one is None or (reached and one["name"] == "pause"):
                break
            self.assertEqual(one["outline"], "solid", one)
            self.assertGreaterEqual(one["width"], 2, one)
            reached.append(one["name"])
            self.browser.focused().send_keys(Keys.TAB)
        self.assertEqual(reached, [
            "pause", "token-button", "prompt", "max-tokens", "temperature", "seed", "generate",
            *["text"] * 3, *["map", "scroll"] * 3])
        # All controls have accessible names.
        tree = self.browser.cdp("Accessibility.getFullAXTree", {})["nodes"]
        for node in tree:
            focusable = any(p["name"] == "focusable" and p["value"].get("value")
                            for p in node.get("properties", []))
            if focusable and node["role"]["value"] != "RootWebArea" and not node["ignored"]:
                self.assertTrue(node["name"]["value"], node)

    def test_the_map_by_arrow_keys(self):
        self.server.load(["shakespeare-mla"])
        canvas = "#models section:last-child .map"
        self.browser.until(lambda: self.browser.cards()[MODELS[2]]["rows"])
        self.browser.find("#pause").click()
        readout = "#models section:last-child .readout"
        self.browser.js("arguments[0].focus()", self.browser.find(canvas))
        kinds = set()
        for block in range(1024):
            key = Keys.HOME if block == 0 else Keys.ARROW_RIGHT
            self.browser.find(canvas).send_keys(key)
            text = self.browser.text(readout)
            found = re.fullmatch(r"block (\d+): (allocated to #\d+(, shared)?|evictable|free)", text)
            self.assertTrue(found, text)
            self.assertEqual(int(found[1]), block)
            kinds.add(found[2].split()[0])
            if found[2].startswith("allocated"):
                marked = self.browser.js("return [...document.querySelectorAll('.marked th')]"
                                         ".map((cell) => cell.textContent)")
                self.assertEqual(len(marked), 1)
                self.assertIn(re.search(r"#\d+", text)[0], marked[0])
                if block > 1:
                    break
        self.assertIn("allocated", kinds)
        self.assertIn("Map of the 1,024 blocks of shakespeare-mla",
                      self.browser.find(canvas).get_attribute("aria-label"))

    def test_a_narrow_window_needs_no_sideways_scrolling(self):
        self.server.load()
        self.browser.generate("ROMEO:", tokens=8)
        self.browser.until(lambda: all(card["rows"] for card in self.browser.cards().values()))
        for width in [320, 390, 700, 1000]:
            self.browser.resize(width, 800)
            self.assertLessEqual(self.browser.js("return document.documentElement.scrollWidth"),
                                 width)

    def test_a_server_that_is_gone_and_comes_back(self):
        self.browser.cdp("Network.enable", {})
        conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.browser.cdp("Network.emulateNetworkConditions", {"offline": True, **conditions})
        self.browser.until(lambda: "does not answer" in self.browser.text("#notice"))
        self.assertEqual(self.browser.text("#state"), "no data")
        self.assertIn("stale", self.browser.js("return document.body.className"))
        self.browser.cdp("Network.emulateNetworkConditions", {"offline": False, **conditions})
        self.browser.until_live()
        self.assertTrue(self.browser.js("return document.querySelector('#notice').hidden"))


class TokenTest(unittest.TestCase):
    """With a server that requires tokens, the page is public, and shows what the user's token allows."""

    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".tokens")
        for name, scopes in [("ann", "inference,statistics"), ("bob", "inference"),
                             ("cyd", "statistics"), ("root", "admin")]:
            digest = hashlib.sha256(f"token-of-{name}".encode()).hexdigest()
            cls.file.write(f"{name} {scopes} {digest}\n")
        cls.file.flush()
        cls.server = Server("--tokens", cls.file.name).__enter__()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.__exit__()
        cls.file.close()

    def setUp(self):
        self.browser.open(self.server.url)
        self.browser.until(lambda: "requires a token" in self.browser.text("#notice"))

    def tearDown(self):
        self.server.unload()

    def use(self, token):
        field = self.browser.find("#token")
        if not field.is_displayed():
            self.browser.find("#token-button").click()
        field.send_keys(token, Keys.ENTER)

    def test_without_one_nothing_is_shown(self):
        self.assertTrue(self.browser.find("#token").is_displayed())
        self.assertEqual(self.browser.cards(), {})
        self.assertFalse(self.browser.find("#totals").is_displayed())
        self.use("wrong")
        self.browser.until(lambda: "does not know this token" in self.browser.text("#notice"))
        self.assertEqual(self.browser.cards(), {})

    def test_it_stays_in_the_page(self):
        self.use("token-of-ann")
        self.browser.until_live()
        self.assertTrue(self.browser.js("return document.querySelector('#notice').hidden"))
        self.assertEqual(self.browser.js(
            "return [localStorage.length, sessionStorage.length, document.cookie, location.search]"),
            [0, 0, "", ""])
        self.assertEqual(self.browser.find("#token").get_attribute("value"), "")
        answers = self.browser.generate("ROMEO:", tokens=8)
        self.assertTrue(all(answer["text"] for answer in answers.values()))
        self.browser.find("#token-button").click()
        self.browser.find("#forget").click()
        self.browser.until(lambda: "requires a token" in self.browser.text("#notice"))

    def test_one_that_may_not_see_the_caches(self):
        self.use("token-of-bob")
        self.browser.until(lambda: "need the scope statistics" in self.browser.text("#notice"))
        self.assertEqual(self.browser.cards(), {})
        answers = self.browser.generate("ROMEO:", tokens=8)
        self.assertTrue(all(answer["text"] for answer in answers.values()))

    def test_one_that_may_not_generate(self):
        self.use("token-of-cyd")
        self.browser.until(lambda: "need the scope inference" in self.browser.text("#notice"))
        self.browser.until_live()
        self.assertEqual(list(self.browser.cards()), MODELS)
        self.assertEqual(self.browser.answers(), {})

    def test_others_sequences_have_no_names(self):
        self.server.load(["shakespeare-mla"], token="token-of-bob")
        self.use("token-of-ann")
        card = self.browser.until(lambda: (c := self.browser.cards()) and
                                  c[MODELS[2]]["rows"] and c[MODELS[2]])
        for row in card["rows"]:
            self.assertRegex(row["head"], r"^#\d+$")
            self.assertNotEqual(row["allocated"]["value"], "0")
        self.use("token-of-root")
        self.browser.until(lambda: any(re.match(r"#\d+[0-9a-f]{8}-\d+$", row["head"])
                                       for row in self.browser.cards()[MODELS[2]]["rows"]))


def screenshot(file):
    """A picture of the page under load, with an answered prompt."""
    with Server() as server:
        browser = Browser(1240, 900)
        try:
            browser.scheme("light")
            browser.open(server.url)
            browser.until_live()
            server.load(concurrency=12)
            browser.until(lambda: browser.js(
                "return cards.get('shakespeare-mla')?.rates.length ?? 0") > 40)
            browser.fill("#seed", "4")
            browser.generate("ROMEO:\nWhat light is this that breaks upon the night?\n", tokens=160,
                             temperature=0.7)
            browser.until(lambda: all(len(card["rows"]) > 4 for card in browser.cards().values()))
            browser.js("document.activeElement.blur()")
            browser.picture(file)
        finally:
            browser.quit()


def main():
    global build
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=build)
    parser.add_argument("--screenshot", metavar="FILE")
    arguments, rest = parser.parse_known_args()
    build = arguments.build
    if MISSING:
        print(f"skipped page_test: {', '.join(MISSING)} is missing")
        return 77
    if arguments.screenshot:
        screenshot(arguments.screenshot)
        return 0
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
