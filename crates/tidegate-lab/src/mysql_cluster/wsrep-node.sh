# Starts a node of Galera as its packages do: after a crash, it first reads its position in the cluster's history from
# its data, so that it requests only the missed changes from the others, and not all data.
#
#   wsrep-node.sh GRASTATE SERVER ARGS...
grastate=$1
shift
if grep -q '^seqno: *-1$' "$grastate" && ! grep -q '^uuid: *00000000-' "$grastate"; then
  place=$("$@" --wsrep-recover 2>&1 | sed -n 's/.*WSREP: Recovered position: *//p' | tail -n 1)
fi
exec "$@" ${place:+"--wsrep-start-position=$place"}
