# SPDX-License-Identifier: Apache-2.0
# Completion of commands and flags for fish. It asks the programs' --help, so it knows what the installed release knows.

function __baton_commands
    baton --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort -u
end

function __baton_bench_commands
    baton --help 2>/dev/null | sed -n 's/^  bench \([a-z]*\) .*/\1/p'
end

function __baton_flags
    # The words before the cursor: the program, then for `baton` its command of one or two words.
    set -l words (commandline -opc)
    set -l call $words[1]
    if test "$words[1]" = baton
        set call $words[1..2]
        if test "$words[2]" = bench
            set call $words[1..3]
        end
    end
    $call --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
end

function __baton_has_words
    test (count (commandline -opc)) -eq $argv[1]
end

complete -c baton -n '__baton_has_words 1' -f -a '(__baton_commands) help'
complete -c baton -n '__baton_has_words 2; and __fish_seen_subcommand_from bench' -f -a '(__baton_bench_commands)'
complete -c baton -n '__baton_has_words 3; and __fish_seen_subcommand_from role' -f -a 'decode prefill'
complete -c baton -n 'not __baton_has_words 1' -a '(__baton_flags)'
for program in baton_router baton_prefill_worker baton_decode_worker
    complete -c $program -a '(__baton_flags)'
end
