#!/bin/sh
# What the host asks of a guest about one program; see program.py.
#
#   program.sh start BASE PROGRAM ARG...   become the program, its output in BASE.out and BASE.err
#   program.sh consumption PID             every file by which the kernel tells of it, "path:line"
#   program.sh sweep SESSION               kill what is left of a session; print what was found

case $1 in
  start)
    base=$2
    shift 2
    # A session of its own, so that all that descends from it can be told from the rest.
    exec setsid "$@" >"$base.out" 2>"$base.err"
    ;;
  consumption)
    cd /proc || exit
    exec grep -Hs "" "$2/status" "$2"/task/*/stat "$2"/task/*/status "$2"/task/*/schedstat
    ;;
  sweep)
    session=$2
    for stat in /proc/[0-9]*/stat; do
      # The process may have ended since the folder was listed.
      read -r line 2>/dev/null <"$stat" || continue
      pid=${line%% *}
      # After the name, which stands in parentheses and may hold anything: state, parent, group,
      # session.
      # shellcheck disable=SC2086 # to be split
      set -- ${line##*) }
      # Its leader is known by its number too, if it has not come to lead it yet.
      if { [ "$4" = "$session" ] || [ "$pid" = "$session" ]; } && [ "$1" != Z ]; then
        echo "$line"
        kill -KILL "$pid" 2>/dev/null
      fi
    done
    ;;
  *)
    echo "program.sh: unknown request '$1'" >&2
    exit 2
    ;;
esac
