# A shell that remembers: each order names a folder, whose scripts are sourced in this very shell.
# Started with the numbers of two descriptors: orders come from the first, reports go to the second.
exec {__paddock_orders}<&"$1" {__paddock_reports}>&"$2"
eval "exec $1<&- $2>&-"
set --
trap 'return 130 2>/dev/null' INT
while IFS= read -r -u "$__paddock_orders" __paddock_folder; do
  . "$__paddock_folder/before.sh"
  . "$__paddock_folder/code.sh"
  __paddock_status=$?
  . "$__paddock_folder/after.sh"
  printf '%s\n' "$__paddock_status" >&"$__paddock_reports"
done
