#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests: valid by Kubernetes' own schemas, with arguments that the programs take, and consistent with each other."""
import atexit
import glob
import os
import shutil
import tempfile
import unittest
import warnings

import programs
import support

support.tools()
import kubernetes_validate  # noqa: E402  (one of the tools)
import yaml  # noqa: E402

FOLDER = os.path.join(support.DEPLOY, "kubernetes")
OVERLAYS = ("gpu", "tls", "mtls", "keys", "tracing", "hpa", "keda")
VERSIONS = ("1.31", "1.34")  # Oldest with a preStop sleep by default, and a current one.


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def load(path):
    with open(path) as file:
        return documents(file.read())


def problem(document, version):
    """None, or what the schema has against the document. Kinds that Kubernetes itself does not have are not judged."""
    if document["apiVersion"].startswith("keda.sh/"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kubernetes_validate.validate(document, version, strict=True)
    except Exception as error:  # Several kinds, no common base but Exception.
        return f"{document['kind']} {document['metadata'].get('name')}: {str(error)[:500]}"
    return None


def base():
    """The documents of the base, without kustomize."""
    names = load(os.path.join(FOLDER, "base/kustomization.yaml"))[0]["resources"]
    return [document for name in names for document in load(os.path.join(FOLDER, "base", name))]


def of_kind(all_documents, kind):
    return {document["metadata"]["name"]: document for document in all_documents if document["kind"] == kind}


def key_files():
    """A folder with what the Secrets of overlays/keys have."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    for name, text in (("keys", "workers k-90c41be2aa7d43f1 worker\n"), ("key", "k-90c41be2aa7d43f1\n")):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
        os.chmod(file.name, 0o440)
    return folder


KEY_FILES = key_files()


def matches(selector, labels):
    for expression in selector.get("matchExpressions", []):
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


class SchemaTest(unittest.TestCase):
    def test_files(self):
        found = base() + [document for path in glob.glob(FOLDER + "/overlays/*/*.yaml") for document in load(path)
                          if isinstance(document, dict) and document["kind"] in ("Ingress", "HorizontalPodAutoscaler")]
        self.assertGreaterEqual(len(found), 14)
        for version in VERSIONS:
            self.assertEqual([p for p in (problem(document, version) for document in found) if p], [])

    def test_a_mistake_is_found(self):
        router = of_kind(base(), "Deployment")["baton-router"]
        router["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        self.assertIn("readynessProbe", problem(router, VERSIONS[-1]))

    @unittest.skipIf(shutil.which("kubectl") is None, "needs kubectl, for kustomize")
    def test_rendered(self):
        for target in ("base", *(f"overlays/{name}" for name in OVERLAYS)):
            result = support.run(["kubectl", "kustomize", os.path.join(FOLDER, target)])
            self.assertEqual(result.returncode, 0, result.stderr)
            rendered = documents(result.stdout)
            for version in VERSIONS:
                self.assertEqual([p for p in (problem(document, version) for document in rendered) if p], [], target)
            self.check_pods(rendered)
            deployments = of_kind(rendered, "Deployment")
            for name in ("baton-prefill", "baton-decode"):
                scaled = target in ("overlays/hpa", "overlays/keda")
                self.assertEqual("replicas" in deployments[name]["spec"], not scaled, f"{target} {name}")
                limits = deployments[name]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
                self.assertEqual(limits.get("nvidia.com/gpu"), "1" if target == "overlays/gpu" else None)
            if target == "overlays/gpu":
                self.assertTrue(all(d["spec"]["template"]["spec"]["containers"][0]["image"].endswith("-cuda") for d in deployments.values()))
            if target == "overlays/mtls":
                self.check_mutual_tls(deployments)
            if target == "overlays/keys":
                self.check_keys(deployments)
            if target == "overlays/tracing":
                self.check_tracing(rendered)
            if target == "overlays/tls":
                self.assertEqual(of_kind(rendered, "Ingress")["baton"]["spec"]["tls"][0]["secretName"], "baton-tls")
            # No label of ours in selectors of pods that are not ours.
            for policy in of_kind(rendered, "NetworkPolicy").values():
                for rule in policy["spec"].get("ingress", []) + policy["spec"].get("egress", []):
                    for peer in rule.get("from", []) + rule.get("to", []):
                        labels = peer.get("podSelector", {}).get("matchLabels", {})
                        if "namespaceSelector" in peer:
                            self.assertNotIn("app.kubernetes.io/name", labels)

    def check_mutual_tls(self, deployments):
        for name, deployment in deployments.items():
            pod = deployment["spec"]["template"]["spec"]
            container = pod["containers"][0]
            variables = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
            self.assertEqual(variables["BATON_CLUSTER_TLS_NAME"], "node.baton")
            (mount,) = (m for m in container["volumeMounts"] if m["name"] == "cluster-tls")
            (volume,) = (v for v in pod["volumes"] if v["name"] == "cluster-tls")
            self.assertEqual(volume["secret"]["secretName"], "baton-cluster-tls")
            for part in ("CERT", "KEY", "CA"):
                self.assertEqual(os.path.dirname(variables[f"BATON_CLUSTER_TLS_{part}"]), mount["mountPath"])
            if name == "baton-router":
                port = {entry["name"]: entry["containerPort"] for entry in container["ports"]}["workers"]
                self.assertEqual(variables["BATON_REGISTRY"], f"0.0.0.0:{port}")
            else:
                self.assertIn("--router=baton-routers:9002", container["args"])
                self.assertEqual(variables["BATON_INSECURE"], "false")

    def check_keys(self, deployments):
        for name, deployment in deployments.items():
            pod = deployment["spec"]["template"]["spec"]
            container = pod["containers"][0]
            (mount,) = (m for m in container["volumeMounts"] if m["name"] == "keys")
            (volume,) = (v for v in pod["volumes"] if v["name"] == "keys")
            if name == "baton-router":
                self.assertNotIn("--insecure=true", container["args"])
                self.assertIn(f"--api-keys={mount['mountPath']}/keys", container["args"])
            else:
                self.assertIn({"name": "BATON_API_KEY_FILE", "value": f"{mount['mountPath']}/key"}, container["env"])
            self.assertEqual(volume["secret"]["secretName"], "baton-keys" if name == "baton-router" else "baton-worker-key")

    def check_tracing(self, rendered):
        """Every process is told where its spans go, and may reach it: the network policies keep in what they do not name."""
        for deployment in of_kind(rendered, "Deployment").values():
            container = deployment["spec"]["template"]["spec"]["containers"][0]
            self.assertIn({"name": "BATON_TRACE_OTLP", "value": "http://otel-collector.observability:4318"}, container["env"])
        policies = of_kind(rendered, "NetworkPolicy")
        for name in ("baton-router", "baton-workers"):
            policy = policies[name]
            ports = {(peer["namespaceSelector"].get("matchLabels", {}).get("kubernetes.io/metadata.name"), port["port"])
                     for rule in policy["spec"]["egress"] for peer in rule["to"] if "namespaceSelector" in peer for port in rule["ports"]}
            self.assertEqual(ports, {("observability", 4318), (None, 53)}, name)

    def check_pods(self, rendered):
        for name, deployment in of_kind(rendered, "Deployment").items():
            pod = deployment["spec"]["template"]["spec"]
            container = pod["containers"][0]
            mounted = {"/etc/baton/cluster-tls": support.certificates(), "/etc/baton/keys": KEY_FILES, "$(POD_NAME)": "pod-1", "$(POD_IP)": "10.0.0.9"}

            def here(text):
                for path, real in mounted.items():
                    text = text.replace(path, real)
                return text
            variables = {entry["name"]: here(entry["value"]) for entry in container.get("env", []) if "value" in entry}
            arguments = [here(argument) for argument in container["args"] if not argument.startswith("--model=")]
            self.assertIsNone(programs.problem(container["command"][0], arguments, variables), name)
            self.assertTrue(pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])
            grace = next(support.seconds(argument.split("=")[1]) for argument in container["args"] if argument.startswith("--grace="))
            sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], sleep + grace + 10, name)
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            flags = dict(argument[2:].split("=", 1) for argument in container["args"])
            for flag, port in (("status", "status"), ("grpc", "grpc"), ("http", "http"), ("listen", "grpc")):
                if flag in flags:
                    self.assertEqual(int(flags[flag].split(":")[-1]), ports[port], f"{name} --{flag}")
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertEqual(container[probe]["httpGet"]["port"], "status")
            self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/ready")


class ConsistencyTest(unittest.TestCase):
    def setUp(self):
        self.base = base()
        self.deployments = of_kind(self.base, "Deployment")

    def labels(self, deployment):
        return self.deployments[deployment]["spec"]["template"]["metadata"]["labels"]

    def test_pods(self):
        SchemaTest.check_pods(self, self.base)

    def test_selectors_find_their_pods(self):
        self.assertEqual(set(self.deployments), {"baton-router", "baton-prefill", "baton-decode"})
        for name, deployment in self.deployments.items():
            self.assertTrue(matches(deployment["spec"]["selector"], self.labels(name)))
            for constraint in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
                self.assertTrue(matches(constraint["labelSelector"], self.labels(name)))
            budget = of_kind(self.base, "PodDisruptionBudget")[name]
            self.assertTrue(matches(budget["spec"]["selector"], self.labels(name)))
            # A pool's selector finds no other pool.
            others = [other for other in self.deployments if other != name]
            self.assertFalse(any(matches(deployment["spec"]["selector"], self.labels(other)) for other in others))

    def test_workers_find_every_router(self):
        services = of_kind(self.base, "Service")
        headless = services["baton-routers"]["spec"]
        self.assertEqual((headless["clusterIP"], headless["publishNotReadyAddresses"]), ("None", True))
        for service in services.values():
            self.assertTrue(matches({"matchLabels": service["spec"]["selector"]}, self.labels("baton-router")))
            ports = {port["name"] for port in self.deployments["baton-router"]["spec"]["template"]["spec"]["containers"][0]["ports"]}
            self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)
        for role in ("prefill", "decode"):
            arguments = self.deployments[f"baton-{role}"]["spec"]["template"]["spec"]["containers"][0]["args"]
            self.assertIn("--router=baton-routers:9000", arguments)

    def may_reach(self, source, target, port):
        """Whether the network policies let pods of one deployment reach a port of another's."""
        ports = self.deployments[target]["spec"]["template"]["spec"]["containers"][0]["ports"]
        names = {port, *(entry["name"] for entry in ports if entry["containerPort"] == port)}

        def allowed(direction, own, peer):
            for policy in of_kind(self.base, "NetworkPolicy").values():
                if not matches(policy["spec"]["podSelector"], self.labels(own)):
                    continue
                for rule in policy["spec"].get(direction, []):
                    peers = rule["from" if direction == "ingress" else "to"]
                    near = [p for p in peers if "namespaceSelector" not in p and matches(p["podSelector"], self.labels(peer))]
                    if near and any(entry["port"] in names or ("endPort" in entry and entry["port"] <= port <= entry["endPort"]) for entry in rule["ports"]):
                        return True
            return False

        return allowed("egress", source, target) and allowed("ingress", target, source)

    def test_network_policies_let_through_what_is_needed_and_no_more(self):
        router, prefill, decode = "baton-router", "baton-prefill", "baton-decode"
        # A worker that has changed its role keeps its labels, so KV goes between any two; tcp and nccl listen at free ports.
        kv = [(source, target, port) for source in (prefill, decode) for target in (prefill, decode) for port in (9001, 40000)]
        for source, target, port in ((prefill, router, 9000), (decode, router, 9000), (router, prefill, 9001), (router, decode, 9001), *kv):
            self.assertTrue(self.may_reach(source, target, port), f"{source} to {target}:{port}")
        for source, target, port in ((router, decode, 40000), (router, router, 9000), (prefill, router, 8000), (prefill, router, 40000), (router, prefill, 9100)):
            self.assertFalse(self.may_reach(source, target, port), f"{source} to {target}:{port}")

    def test_autoscalers_have_one_signal_each_that_exists(self):
        rules = load(os.path.join(support.DEPLOY, "monitoring/rules.yaml"))[0]
        recorded = {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
        adapter = load(os.path.join(support.DEPLOY, "monitoring/prometheus-adapter.yaml"))[0]
        external = {rule["name"]["as"]: rule["seriesQuery"] for rule in adapter["externalRules"]}
        signals = set()
        for scaler in load(os.path.join(FOLDER, "overlays/hpa/autoscalers.yaml")):
            self.assertIn(scaler["spec"]["scaleTargetRef"]["name"], self.deployments)
            (metric,) = scaler["spec"]["metrics"]
            signals.add(external[metric["external"]["metric"]["name"]])
        keda = set()
        for scaled in load(os.path.join(FOLDER, "overlays/keda/scaled-objects.yaml")):
            self.assertIn(scaled["spec"]["scaleTargetRef"]["name"], self.deployments)
            # No schema of KEDA's is at hand: the fields of its documentation that are used here.
            self.assertEqual((scaled["apiVersion"], scaled["kind"]), ("keda.sh/v1alpha1", "ScaledObject"))
            self.assertEqual(set(scaled["spec"]), {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod",
                                                   "advanced", "triggers"})
            (trigger,) = scaled["spec"]["triggers"]
            self.assertEqual((set(trigger), trigger["type"]), ({"type", "metricType", "metadata"}, "prometheus"))
            self.assertEqual(set(trigger["metadata"]), {"serverAddress", "query", "threshold"})
            self.assertEqual({type(value) for value in trigger["metadata"].values()}, {str})  # Numbers are refused.
            self.assertIn(trigger["metricType"], ("AverageValue", "Value"))
            self.assertEqual(set(scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]), {"behavior"})  # Kubernetes' own: as in overlays/hpa.
            keda.add(trigger["metadata"]["query"])
        self.assertEqual(signals, keda)
        self.assertEqual(len(signals), 2)
        self.assertLessEqual(signals, recorded)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BIN, "baton_router")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
