# SPDX-License-Identifier: Apache-2.0
# source_of(header): the source with which a header is read. It is the one of the same name, else
# the nearest that includes the header, directly or through others; "" if there is none.
# The caller fills two arrays: `candidate` has a key for each source that may be chosen, and
# `includers[file]` the files that include `file`, each followed by a newline
# (scripts/includes.sh).
function source_of(header,   stem, queue, first, last, seen, files, count, i) {
  stem = header
  sub(/[.]h$/, "", stem)
  if ((stem ".cc") in candidate) return stem ".cc"
  if ((stem ".c") in candidate) return stem ".c"
  queue[last = 1] = header
  for (first = 1; first <= last; ++first) {
    count = split(includers[queue[first]], files, "\n")
    for (i = 1; i < count; ++i) {
      if (files[i] in candidate) return files[i]
      if (files[i] in seen) continue
      seen[files[i]] = 1
      queue[++last] = files[i]
    }
  }
  return ""
}
