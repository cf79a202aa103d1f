#!/usr/bin/env python3
"""Checks the objects of docker/kubernetes against Kubernetes' types and the server.

    tests/kubernetes/check.py --work DIR [--bin DIR]

Renders the base and each overlay; if kubectl is installed, its kustomize must render the same objects.
Every field of an object must exist in Kubernetes 1.30 (checked with TypeScript's compiler and the npm
package kubernetes-types). Names must refer to existing objects, and pods must satisfy the Pod Security
Standard "restricted". The server must start with its config, and must not start without its secrets.
Copies of the objects with one fault each must fail the checks. npm installs into --work.
"""

import argparse
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import yaml

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDER = os.path.join(ROOT, "docker", "kubernetes")
TYPES = ["kubernetes-types@1.30.0", "typescript@5.9.3"]
START_TIMEOUT = 120  # seconds


class Wrong(Exception):
    """A fault of the objects, and its place."""


def check(holds, what):
    if not holds:
        raise Wrong(what)


def load(path):
    check(os.path.isfile(path), f"{path} does not exist")
    with open(path, encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


# Rendering: the part of kustomize that docker/kubernetes uses.

def merge(target, patch):
    """A strategic merge: null deletes, lists of objects merge by key, other values are replaced."""
    for field, value in patch.items():
        if value is None:
            target.pop(field, None)
        elif isinstance(value, dict) and isinstance(target.get(field), dict):
            merge(target[field], value)
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            key = "mountPath" if field == "volumeMounts" else "name"
            for item in value:
                same = [old for old in target.setdefault(field, []) if old[key] == item[key]]
                if same:
                    merge(same[0], item)
                else:
                    target[field].append(item)
        else:
            target[field] = value


def name_of(item):
    return item["kind"], item["metadata"]["name"]


def render(folder):
    """Renders a kustomization: {(kind, name): object}."""
    (kustomization,) = load(os.path.join(folder, "kustomization.yaml"))
    allowed = {"apiVersion", "kind", "resources", "patches", "images"}
    check(set(kustomization) <= allowed, f"{folder}: allowed fields: {sorted(allowed)}")
    objects = {}
    for resource in kustomization["resources"]:
        path = os.path.join(folder, resource)
        more = render(path) if os.path.isdir(path) else {name_of(item): item for item in load(path)}
        check(not more.keys() & objects.keys(), f"{resource}: {more.keys() & objects.keys()} defined twice")
        objects.update(more)
    for patch in kustomization.get("patches", []):
        for item in load(os.path.join(folder, patch["path"])):
            check(name_of(item) in objects, f"{patch['path']}: no {name_of(item)} to patch")
            merge(objects[name_of(item)], item)
    for image in kustomization.get("images", []):
        for container in containers(objects):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return objects


def compare_with_kubectl(folder, objects):
    made = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True)
    theirs = {name_of(item): item for item in yaml.safe_load_all(made.stdout)}
    def ordered(value):  # Lists that merge by key have no defined order.
        if isinstance(value, dict):
            return {key: ordered(value[key]) for key in sorted(value)}
        if isinstance(value, list):
            return sorted((ordered(item) for item in value), key=json.dumps)
        return value
    check(ordered(theirs) == ordered(objects), f"{folder}: kubectl's kustomize renders other objects")


# Fields.

def type_errors(work, objects):
    """For each object, the TypeScript compiler's errors about its Kubernetes type."""
    installed = subprocess.run(["npm", "install", "--prefer-offline", "--no-audit", "--no-fund",
                                "--silent", "--prefix", work, *TYPES], stdin=subprocess.DEVNULL)
    if installed.returncode != 0:
        print("skipped: npm cannot install " + " ".join(TYPES))
        sys.exit(77)
    texts = []
    with tempfile.TemporaryDirectory(dir=work) as sources:
        for number, item in enumerate(objects):
            group, _, version = item["apiVersion"].rpartition("/")
            module = f"kubernetes-types/{(group or 'core').split('.')[0]}/{version}"
            texts.append(f'import {{ {item["kind"]} }} from "{module}";\n'
                         f'export const item: {item["kind"]} = {json.dumps(item, indent=1)};\n')
            with open(os.path.join(sources, f"{number}.ts"), "w", encoding="utf-8") as file:
                file.write(texts[-1])
        ended = subprocess.run(
            ["npx", "--prefix", work, "tsc", "--noEmit", "--strict", "--pretty", "false",
             "--moduleResolution", "bundler", "--module", "esnext",
             *(f"{number}.ts" for number in range(len(objects)))],
            cwd=sources, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    errors = [[] for _ in objects]
    for line in ended.stdout.splitlines():
        found = re.match(r"(\d+)\.ts\((\d+),\d+\): error (.*)", line)
        if found:
            number = int(found.group(1))
            where = texts[number].splitlines()[int(found.group(2)) - 1].strip()
            errors[number].append(f"{where}: {found.group(3)}")
    check(ended.returncode == 0 or any(errors), f"tsc: {ended.stdout}{ended.stderr}")
    return errors


# Meaning.

def workloads(objects):
    return [item for (kind, _), item in objects.items() if kind == "Deployment"]


def containers(objects):
    return [container for item in workloads(objects)
            for container in item["spec"]["template"]["spec"]["containers"]]


def check_restricted(item):
    pod = item["spec"]["template"]["spec"]
    context = pod.get("securityContext", {})
    check(context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0, "it can run as root")
    check(context.get("seccompProfile") == {"type": "RuntimeDefault"}, "no seccomp profile")
    check(not any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC")), "the host's")
    check(pod.get("automountServiceAccountToken") is False, "it gets a service account token")
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        check(context.get("allowPrivilegeEscalation") is False, "it can gain privileges")
        check(not context.get("privileged"), "it is privileged")
        check(context.get("readOnlyRootFilesystem") is True, "its file system is writable")
        check(context.get("capabilities") == {"drop": ["ALL"]}, "it has capabilities")
        check(set(container["resources"]["limits"]) >= {"cpu", "memory"}, "it has no limits")
    for volume in pod["volumes"]:
        check(set(volume) - {"name"} <= {"configMap", "secret"}, f"volume of another kind: {volume}")


def check_references(objects, secrets):
    for item in workloads(objects):
        pod, labels = item["spec"]["template"]["spec"], item["spec"]["template"]["metadata"]["labels"]
        def selects(selector, labels=labels):
            return selector.items() <= labels.items()
        check(selects(item["spec"]["selector"]["matchLabels"]), "the deployment's selector does not select its pods")
        for (kind, name), other in objects.items():
            spec = other.get("spec", {})
            selector = {"Service": lambda s: s["selector"],
                        "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
                        "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"]}.get(kind)
            if selector:
                check(selects(selector(spec)), f"{kind} {name} selects no pod")
        volumes = {volume["name"] for volume in pod["volumes"]}
        for volume in pod["volumes"]:
            if "configMap" in volume:
                check(("ConfigMap", volume["configMap"]["name"]) in objects, f"no such config map: {volume}")
            else:
                check(volume["secret"]["secretName"] in secrets,
                      f"docker/README.md does not create this secret: {volume}")
        for container in pod["containers"]:
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            check(mounted == volumes, f"mounts {mounted}; volumes {volumes}")
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                actions = set(container[probe]) & {"grpc", "httpGet", "tcpSocket", "exec"}
                check(len(actions) == 1, f"{probe}: {actions}")
                port = container[probe][actions.pop()]["port"]
                check(port in ports or port in ports.values(), f"{probe}: unknown port {port}")
            check_end(container, pod, objects)
    names = {port["name"] for container in containers(objects) for port in container["ports"]}
    for (kind, name), item in objects.items():
        if kind == "Service":
            check({port["targetPort"] for port in item["spec"]["ports"]} <= names, f"{name}: unknown target ports")
        if kind == "NetworkPolicy":
            ports = {port["port"] for rule in item["spec"]["ingress"] for port in rule["ports"]}
            check(ports <= names, f"{name}: ports {ports}")
        if kind == "HorizontalPodAutoscaler":
            target = item["spec"]["scaleTargetRef"]
            check((target["kind"], target["name"]) in objects, f"{name}: no {target}")
            check("replicas" not in objects[target["kind"], target["name"]]["spec"],
                  f"{name}: applying the deployment would undo its work")
            check({metric["pods"]["metric"]["name"] for metric in item["spec"]["metrics"]}
                  == adapter_metrics(), f"{name}: prometheus-adapter.yaml has other metrics")


def adapter_metrics():
    (values,) = load(os.path.join(FOLDER, "overlays", "production", "prometheus-adapter.yaml"))
    return {rule["name"]["as"] for rule in values["rules"]["custom"]}


def config_of(objects):
    return objects["ConfigMap", "triptych"]["data"]["server.toml"]


def check_end(container, pod, objects):
    """Checks that preStop and the drain fit into Kubernetes' grace period."""
    drain = int(re.search(r"^drain-timeout = (\d+)$", config_of(objects), re.M).group(1))
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    given = pod["terminationGracePeriodSeconds"]
    check(sleep + drain < given, f"{sleep} s of preStop and {drain} s of draining exceed {given} s")


def hand_made_secrets():
    with open(os.path.join(ROOT, "docker", "README.md"), encoding="utf-8") as file:
        return set(re.findall(r"kubectl create secret (?:generic|tls) (\S+)", file.read()))


def check_meaning(objects, secrets):
    try:
        for item in workloads(objects):
            check_restricted(item)
        check_references(objects, secrets)
    except KeyError as missing:
        raise Wrong(f"no {missing}") from None


def broken(objects):
    """Faulty copies: [(fault, objects, the object with the fault)]"""
    cases = []
    def case(what, breaks, kind="Deployment"):
        copied = copy.deepcopy(objects)
        breaks(copied[kind, "triptych"]["spec"])
        cases.append((what, copied, copied[kind, "triptych"]))
    def pod(spec):
        return spec["template"]["spec"]
    def container(spec):
        return pod(spec)["containers"][0]
    case("a misspelt field", lambda s: container(s).update(readynessProbe={}))
    case("a string instead of a number", lambda s: s.update(minReadySeconds="5"))
    case("a field in the wrong place", lambda s: s.update(containers=[]))
    case("a missing field", lambda s: container(s).pop("name"))
    case("a field that no port has", lambda s: s["ports"][0].update(exposed=True), "Service")
    case("a root user", lambda s: pod(s)["securityContext"].pop("runAsNonRoot"))
    case("privileges", lambda s: container(s)["securityContext"].pop("allowPrivilegeEscalation"))
    case("a drain that is cut off", lambda s: pod(s).update(terminationGracePeriodSeconds=30))
    case("another selector", lambda s: s["selector"].update(x="y"), "Service")
    case("a missing volume", lambda s: pod(s)["volumes"].pop())
    case("a missing port", lambda s: s["ports"][0].update(targetPort="none"), "Service")
    return cases


def serve(programs, config, host, environment):
    """Runs the server with a config for a moment: (True if it serves, its output)."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(config)
        file.flush()
        models = re.sub("/usr/share/triptych/models", os.path.join(ROOT, "models"),
                        ";".join(re.findall(r'"([^"]+=/[^"]+)"', config)))
        others = {name: value for name, value in os.environ.items()
                  if not name.startswith("TRIPTYCH_")}
        server = subprocess.Popen(
            [os.path.join(programs, "triptych-server"), "--config", file.name, "--model", models,
             "--listen", f"{host}:0", "--http", f"{host}:0"],
            env={**others, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        try:
            log = ""
            for line in server.stdout:
                log += line
                if "listening on" in line:
                    break
            else:
                return False, log
            server.send_signal(signal.SIGTERM)
            server.stdout.read()
            check(server.wait(timeout=START_TIMEOUT) == 0, "the server's exit status is not 0")
            return True, log
        finally:
            server.kill()


def check_config(programs, config):
    """Checks that the server starts with the config."""
    serves, log = serve(programs, config, "127.0.0.1", {})
    check(serves, f"the server rejects the config: {log}")


def check_secrets(programs, objects):
    """Checks that a server with secrets in its config does not start without them."""
    (container,) = containers(objects)
    given = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    if "TRIPTYCH_TLS_CERT" not in given:
        return
    image = {"TRIPTYCH_INSECURE": "true"}
    insecure = {name: value for name, value in given.items() if name == "TRIPTYCH_INSECURE"}
    for environment, said in ((given, "cannot be read"), (insecure, "--insecure")):
        serves, log = serve(programs, config_of(objects), "0.0.0.0", {**image, **environment})
        check(not serves and said in log,
              f"without its secrets, the server starts, or fails with another error: {log}")


def run(options):
    os.makedirs(options.work, exist_ok=True)
    folders = [os.path.join(FOLDER, "base"),
               *(entry.path for entry in os.scandir(os.path.join(FOLDER, "overlays")))]
    secrets = hand_made_secrets()
    rendered = {folder: render(folder) for folder in folders}
    good = [item for objects in rendered.values() for item in objects.values()]
    cases = broken(rendered[folders[0]])
    errors = type_errors(options.work, good + [item for _, _, item in cases])
    for item, found in zip(good, errors):
        check(not found, f"{' '.join(name_of(item))}: {'; '.join(found)}")
    for folder, objects in rendered.items():
        try:
            check_meaning(objects, secrets)
        except Wrong as wrong:
            raise Wrong(f"{os.path.relpath(folder, ROOT)}: {wrong}") from None
        if shutil.which("kubectl"):
            compare_with_kubectl(folder, objects)
    for (what, objects, _), found in zip(cases, errors[len(good):]):
        try:
            check_meaning(objects, secrets)
        except Wrong:
            continue
        check(found, f"fault not detected: {what}")
    if options.bin:
        for config in {config_of(objects) for objects in rendered.values()}:
            check_config(options.bin, config)
        for objects in rendered.values():
            check_secrets(options.bin, objects)
    return f"{len(good)} objects of {len(folders)} kustomizations, {len(cases)} faults detected"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder into which npm installs")
    parser.add_argument("--bin", help="folder of triptych-server [the server is not run]")
    options = parser.parse_args()
    try:
        print(f"kubernetes: {run(options)}")
    except Wrong as wrong:
        raise SystemExit(f"kubernetes: WRONG: {wrong}") from None


if __name__ == "__main__":
    main()
