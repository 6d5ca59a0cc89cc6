#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""METRICS.md against what a running cluster exports; rules and their tests by promtool; the dashboard; and all of them shown to
work by a Prometheus that scrapes a cluster under load."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse

import cluster
import support

TOOLS = support.tools()
import yaml  # noqa: E402  (one of the tools)

MONITORING = os.path.join(support.DEPLOY, "monitoring")
PROMETHEUS = os.path.join(TOOLS, "prometheus/usr/bin")


def documented(with_tls=True):
    """{process letter: {name: (type, labels)}} of METRICS.md; vLLM's names have None for both. `with_tls`: also what only a cluster with
    TLS exports."""
    table = {"R": {}, "P": {}, "D": {}}
    with open(os.path.join(support.DEPLOY, "METRICS.md")) as lines:
        for line in lines:
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if not cells or not re.fullmatch(r"`[a-z_:0-9]+`", cells[0]):
                continue
            name = cells[0].strip("`")
            if "With TLS." in cells[-1] and not with_tls:
                continue
            full = len(cells) == 6
            for process in cells[4 if full else 2].split():
                table[process][name] = (cells[1], frozenset(filter(None, cells[2].split(", ")))) if full else (None, None)
    return table


def exported(address):
    """{name: (type, labels, has series)} of a status address."""
    families, name = {}, None
    for line in cluster.get(address, "/metrics")[1].splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            families[name] = [kind, set(), False]
        elif not line.startswith("#"):
            families[name][2] = True
            families[name][1] |= set(re.findall(r'[{,](\w+)="', line)) - {"le"}
    return families


def used_names(expression):
    return set(re.findall(r"\bbaton(?::[\w:]+|_\w+)", expression))


def expressions():
    """{where: expression} of rules and dashboard."""
    found = {}
    with open(os.path.join(MONITORING, "rules.yaml")) as file:
        for group in yaml.safe_load(file)["groups"]:
            for rule in group["rules"]:
                found[rule.get("record") or rule["alert"]] = rule["expr"]
    with open(os.path.join(MONITORING, "dashboard.json")) as file:
        for panel in json.load(file)["panels"]:
            for target in panel.get("targets", []):
                found[f"{panel['title']} {target['refId']}"] = target["expr"].replace("$__rate_interval", "1m")
    return found


KEY, WORKER_KEY = "k-0123456789abcdef", "k-fedcba9876543210"


class StaticTest(unittest.TestCase):
    def promtool(self, *arguments):
        result = support.run([os.path.join(PROMETHEUS, "promtool"), *arguments], cwd=MONITORING)
        return result.returncode, result.stdout + result.stderr

    def test_rules(self):
        self.assertEqual(self.promtool("check", "rules", "rules.yaml")[0], 0)
        code, output = self.promtool("test", "rules", "rules_test.yaml")
        self.assertEqual(code, 0, output)
        code, output = self.promtool("check", "config", "prometheus.yaml")
        self.assertEqual(code, 0, output)
        # Debian's Prometheus is built without the discovery of Kubernetes: the rest of that configuration.
        with open(os.path.join(MONITORING, "prometheus-kubernetes.yaml")) as file:
            config = yaml.safe_load(file)
        (discovery,) = config["scrape_configs"][0].pop("kubernetes_sd_configs")
        self.assertEqual(discovery, {"role": "pod", "namespaces": {"names": ["baton"]}})
        config["rule_files"] = [os.path.join(MONITORING, "rules.yaml")]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as copy:
            yaml.safe_dump(config, copy)
            copy.flush()
            code, output = self.promtool("check", "config", copy.name)
        self.assertEqual(code, 0, output)

    def test_every_alert_has_a_test_and_an_entry_in_the_guide(self):
        with open(os.path.join(MONITORING, "rules.yaml")) as file:
            alerts = set(re.findall(r"- alert: (\w+)", file.read()))
        self.assertGreaterEqual(len(alerts), 15)
        with open(os.path.join(MONITORING, "rules_test.yaml")) as file:
            self.assertEqual(alerts - set(re.findall(r"alertname: (\w+)", file.read())), set())
        with open(os.path.join(support.DEPLOY, "README.md")) as file:
            self.assertEqual(alerts - set(re.findall(r"`(Baton\w+)`", file.read())), set())

    def test_dashboard_is_what_its_script_writes(self):
        result = support.run([os.path.join(MONITORING, "make_dashboard"), "--check"])
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_panels_lie_side_by_side(self):
        with open(os.path.join(MONITORING, "dashboard.json")) as file:
            panels = json.load(file)["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertEqual(cells & taken, set(), panel["title"])
            taken |= cells

    def test_every_metric_of_trouble_is_on_the_dashboard(self):
        with open(os.path.join(MONITORING, "dashboard.json")) as file:
            shown = used_names(file.read())
        self.assertLessEqual({f"baton_{name}_total" for name in ("recoveries", "key_requests_refused", "preemptions", "kv_transfers_corrupt",
                                                                 "kv_transport_fallbacks", "kv_writers_denied")}, shown)

    def test_expressions_use_documented_metrics(self):
        table = documented()
        known = {name for names in table.values() for name in names}
        known |= {name + suffix for names in table.values() for name, (kind, _) in names.items() if kind == "histogram"
                  for suffix in ("_bucket", "_sum", "_count")}
        known |= {name for name in expressions() if name.startswith("baton:")}
        for where, expression in expressions().items():
            self.assertEqual(used_names(expression) - known, set(), where)


class LiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        files = {"keys": f"load {KEY} requests-per-minute=1000000\nworkers {WORKER_KEY} worker\n", "worker-key": f"{WORKER_KEY}\n"}
        for name, text in files.items():
            with open(os.path.join(cls.folder, name), "w") as file:
                file.write(text)
        cls.cluster = cluster.Cluster(cls.folder, support.tiny_model(cls.folder), ["--vllm-metrics", f"--api-keys={cls.folder}/keys"],
                                      ["--vllm-metrics", f"--api-key-file={cls.folder}/worker-key"])
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.start_router("router")
        cls.cluster.start_worker("prefill", "prefill")
        cls.cluster.start_worker("decode", "decode")
        cls.cluster.wait_ready("router")

    def status(self, name):
        return self.cluster.processes[name].status

    def test_1_table_is_true(self):
        with cluster.Load([self.cluster.http["router"]], clients=2, key=KEY) as load:
            load.wait_for(4)
        self.assertEqual(load.lost, [])
        table = documented(with_tls=False)
        for process, name in (("R", "router"), ("P", "prefill"), ("D", "decode")):
            families = exported(self.status(name))
            self.assertEqual(set(families), set(table[process]), f"of {name}: exported (first) and documented (second) differ")
            for metric, (kind, labels, has_series) in families.items():
                expected_kind, expected_labels = table[process][metric]
                self.assertTrue(has_series, f"{metric} of {name} has no series")
                if expected_kind is None:
                    self.assertIn("model_name", labels, metric)
                else:
                    self.assertEqual((kind, labels), (expected_kind, set(expected_labels)), metric)

    def test_2_vllms_names_say_the_same(self):
        router = self.status("router")
        pairs = [("vllm:generation_tokens_total", "baton_completion_tokens_total"),
                 ("vllm:time_to_first_token_seconds_count", "baton_time_to_first_token_seconds_count")]
        for theirs, ours in pairs:
            self.assertGreater(cluster.metric(router, ours), 0)
            self.assertEqual(cluster.metric(router, theirs, model_name="tiny"), cluster.metric(router, ours), theirs)
        self.assertGreater(cluster.metric(router, "vllm:request_success_total", finished_reason="length"), 0)
        self.assertEqual(cluster.metric(self.status("decode"), "vllm:num_requests_waiting"), 0)

    def test_3_prometheus_sees_it_all(self):
        """Every expression of rules and dashboard evaluates over real data; those that load must show are not empty."""
        with open(os.path.join(MONITORING, "rules.yaml")) as source, open(os.path.join(self.folder, "rules.yaml"), "w") as copy:
            copy.write(source.read())
        jobs = {"baton-router": "router", "baton-prefill": "prefill", "baton-decode": "decode"}
        config = {"global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"}, "rule_files": ["rules.yaml"],
                  "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [self.status(name)]}]} for job, name in jobs.items()]}
        with open(os.path.join(self.folder, "prometheus.yaml"), "w") as file:
            yaml.safe_dump(config, file)
        address = f"127.0.0.1:{cluster.free_ports(1)[0]}"
        with open(os.path.join(self.folder, "prometheus.log"), "w") as log:
            server = subprocess.Popen([os.path.join(PROMETHEUS, "prometheus"), f"--config.file={self.folder}/prometheus.yaml",
                                       f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address={address}", "--log.level=warn"],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

        def query(expression):
            status, body = cluster.get(address, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
            self.assertEqual(status, 200, f"{expression}: {body}")
            return [float(series["value"][1]) for series in json.loads(body)["data"]["result"]]

        support.eventually(lambda: cluster.get(address, "/-/ready")[0] == 200, "prometheus")
        # What has no samples while nothing is wrong: alerts, and the phases of other roles.
        quiet = {"Decode: KV transfers A", "Decode: KV bytes A"}
        with cluster.Load([self.cluster.http["router"]], clients=3, key=KEY) as load:
            support.eventually(lambda: sum(query("up")) == 3, "three targets up")
            load.wait_for(10)
            pending = {where: expression for where, expression in expressions().items()
                       if not where.startswith("Baton") and where not in quiet}

            def all_have_values():
                for where in list(pending):
                    if any(value == value for value in query(pending[where])):  # NaN is none.
                        del pending[where]
                return not pending
            try:
                support.eventually(all_have_values, "values", pause=0.5)
            except AssertionError:
                self.fail(f"no value: {pending}")
            for where, expression in expressions().items():
                if where.startswith("Baton"):
                    query(expression)
        self.assertEqual(load.lost, [])
        status, body = cluster.get(address, "/api/v1/rules")
        rules = [rule for group in json.loads(body)["data"]["groups"] for rule in group["rules"]]
        self.assertEqual([(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] not in ("ok", "unknown")], [])


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
