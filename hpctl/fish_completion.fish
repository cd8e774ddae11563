# SPDX-License-Identifier: Apache-2.0
# Completion of hpctl's command line in fish; `hpctl completion fish` prints it.

function __hpctl_jobs
    set -l home $HOME/.hpctl
    set -q HPCTL_HOME; and set home $HPCTL_HOME
    for directory in $home/jobs/*/
        string match -r '^[0-9]+$' (basename $directory)
    end
end

complete -c hpctl -f
complete -c hpctl -n __fish_use_subcommand -l version
complete -c hpctl -n __fish_use_subcommand -l json
complete -c hpctl -n __fish_use_subcommand -s h -l help
complete -c hpctl -n __fish_use_subcommand -a help -d 'show the help of a verb'
