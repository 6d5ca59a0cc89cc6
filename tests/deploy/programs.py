# SPDX-License-Identifier: Apache-2.0
"""Whether the programs take the arguments, settings and variables that files under deploy/ give them."""
import os
import re

import support

_NOWHERE = "/nowhere/model.gguf"
_help = {}


def help_text(program):
    if program not in _help:
        _help[program] = support.run([os.path.join(support.BIN, program), "--help"]).stdout
    return _help[program]


def problem(program, arguments=(), variables=None):
    """None, or what `program` has against these arguments and environment variables (a dict).

    The program reads everything, then finds no model: exit code 1. What is wrong before that is exit code 2.
    """
    for name in variables or {}:
        if name.startswith("BATON_") and not re.search(rf"\b{name}\]", help_text(program)):
            return f"{program} knows no {name}"
    result = support.run([os.path.join(support.BIN, program), *arguments, f"--model={_NOWHERE}"],
                         env={**support.environment(), **(variables or {})})
    if result.returncode == 1 and _NOWHERE in result.stderr:
        return None
    return f"{program} {' '.join(arguments)}: exit code {result.returncode}: {result.stderr.strip()[-500:]}"
