# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of commands and flags for bash. It asks the programs' --help, so it knows what the installed release knows.

# _baton_flags PROGRAM [COMMAND...]
_baton_flags() {
  "$@" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
}

# _baton_commands PROGRAM [PREFIX]: its commands, or those of two words behind the first one of them.
_baton_commands() {
  "$1" --help 2>/dev/null | sed -n "/^Commands:/,/^\$/s/^  $2\([a-z]*\) .*/\1/p" | sort -u
}

_baton() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} words=''
  local -a command=()
  # A program that is no command yet, an alias with arguments, ...: nothing to offer but files.
  type -P "$program" >/dev/null || return
  if [[ ${program##*/} == baton ]]; then
    if ((COMP_CWORD == 1)); then
      words="$(_baton_commands "$program") help --help --version"
    elif [[ ${COMP_WORDS[1]} == bench ]]; then
      if ((COMP_CWORD == 2)); then words=$(_baton_commands "$program" 'bench '); fi
      command=(bench "${COMP_WORDS[2]}")
    elif [[ ${COMP_WORDS[1]} == role ]] && ((COMP_CWORD == 3)); then
      words='decode prefill'
    else
      command=("${COMP_WORDS[1]}")
    fi
  fi
  if [[ -z $words && $current == -* ]]; then words=$(_baton_flags "$program" "${command[@]}"); fi
  # Without words, readline completes file names (-o default).
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o default -F _baton baton baton_router baton_prefill_worker baton_decode_worker
