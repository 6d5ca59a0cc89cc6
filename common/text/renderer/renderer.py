# SPDX-License-Identifier: Apache-2.0
"""Renders chat templates with Jinja2, one request at a time, for the process that started it.

Runs as `/usr/bin/python3 -I -c SOURCE MEMORY_BYTES OUTPUT_BYTES CPU_SECONDS`. Standard input and output carry frames:
four bytes of length (big-endian), then that much JSON. The first frame out says whether the interpreter has Jinja2;
after that each request gets one reply. The limits are this process's own; the parent's deadline is the outer one.
"""
import sys


def read_exactly(stream, size):
    data = stream.read(size)
    if len(data) != size:
        sys.exit(0)  # The parent has gone.
    return data


def main(memory_bytes, output_bytes, cpu_seconds):
    import collections
    import datetime
    import json
    import resource

    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer

    def reply(value):
        data = json.dumps(value, ensure_ascii=True).encode("ascii")
        stdout.write(len(data).to_bytes(4, "big") + data)
        stdout.flush()

    try:
        import jinja2
        import jinja2.ext
        import jinja2.nodes as nodes
        import jinja2.sandbox
    except ImportError as error:
        reply({"ready": False, "error": "%s (Debian: python3-jinja2)" % error})
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    class Generation(jinja2.ext.Extension):
        """{% generation %}: marks an assistant's words for training; renders its body."""

        tags = {"generation"}

        def parse(self, parser):
            lineno = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body).set_lineno(lineno)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    now = [None]

    def strftime_now(form):
        return (now[0] or datetime.datetime.now()).strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now

    def is_member(node, name):
        if isinstance(node, nodes.Getattr):
            return node.attr == name
        return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == name

    class Template:
        """A compiled template and what it expects of messages."""

        def __init__(self, source):
            tree = environment.parse(source)
            tests = [test for test in tree.find_all(nodes.Test) if is_member(test.node, "content")]
            names = {"content"}  # Variables that hold a message's content.
            for assign in tree.find_all(nodes.Assign):
                if is_member(assign.node, "content") and isinstance(assign.target, nodes.Name):
                    names.add(assign.target.name)
            # Asks whether content is none: then a call without words has none rather than "".
            self.knows_none = any(test.name == "none" for test in tests)
            # Goes through content: then it may be a list of parts.
            self.knows_parts = any(
                is_member(loop.iter, "content") or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names)
                for loop in tree.find_all(nodes.For)
            )
            self.compiled = environment.from_string(tree)

    templates = collections.OrderedDict()  # By source, least recently used first.

    def compiled(source):
        if source not in templates:
            templates[source] = Template(source)
            while len(templates) > 8:
                templates.popitem(last=False)
        templates.move_to_end(source)
        return templates[source]

    def flatten(content):
        """Text parts as one text; anything else stays a list for the template to judge."""
        if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
            return "\n".join(str(part.get("text", "")) for part in content)
        return content

    def prepare(message, template):
        """Absent, null and empty content are one thing, and so are absent and empty tool calls."""
        message = dict(message)
        if not message.get("tool_calls"):
            message.pop("tool_calls", None)
        if not template.knows_parts:
            message["content"] = flatten(message.get("content"))
        if message.get("content") in (None, "", []):
            message["content"] = None if template.knows_none and "tool_calls" in message else ""
        return message

    def render(request):
        template = compiled(request["template"])
        if request.get("compile_only"):
            return ""
        now[0] = datetime.datetime.fromisoformat(request["now"]) if request.get("now") else None
        values = dict(request.get("variables") or {})
        values.update(
            messages=[prepare(message, template) for message in request["messages"]],
            tools=request.get("tools") or None,
            documents=request.get("documents") or None,
            add_generation_prompt=request["add_generation_prompt"],
        )
        parts, size = [], 0
        for part in template.compiled.generate(**values):
            size += len(part)
            if size > output_bytes:
                raise jinja2.exceptions.TemplateError("output over %d characters" % output_bytes)
            parts.append(part)
        text = "".join(parts)
        if len(text.encode("utf-8")) > output_bytes:
            raise jinja2.exceptions.TemplateError("output over %d bytes" % output_bytes)
        return text

    def describe(error):
        if isinstance(error, MemoryError):
            return "out of memory"
        if isinstance(error, RecursionError):
            return "recursion too deep"
        if isinstance(error, UnicodeEncodeError):
            return "output is not valid Unicode"
        if isinstance(error, jinja2.exceptions.TemplateSyntaxError):
            return "line %d: %s" % (error.lineno, error.message)
        if isinstance(error, jinja2.exceptions.TemplateError):
            return str(error.message if error.message is not None else error)
        return "%s: %s" % (type(error).__name__, error)

    reply({"ready": True})
    while True:
        size = int.from_bytes(read_exactly(stdin, 4), "big")
        data = read_exactly(stdin, size)
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + cpu_seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        try:
            answer = {"text": render(json.loads(data))}
        except Exception as error:  # Whatever a template can raise is the answer.
            answer = {"error": describe(error)[:4096]}
        try:
            reply(answer)
        except MemoryError:
            reply({"error": "out of memory"})
        answer = None


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
