# The picture of a sweep:   gnuplot -c engine/tools/research/sweep.gnuplot FILE.csv FILE.svg [SPAN HEALED]
# Losses are drawn to SPAN nats above the source as converted [0.5], and to HEALED after training
# [0.05]. A sweep without training has the first picture only.
csv = ARG1
span = ARGC > 2 ? ARG3 + 0 : 0.5
healed_span = ARGC > 3 ? ARG4 + 0 : 0.05
set datafile separator ','
set terminal svg size 1060,500 font 'DejaVu Sans,15' background 'white'
set output ARG2

# A column of the rows with this attention, method and format of the cache; 'none' is the source,
# whatever it is. Their line is the mean of the seeds; for a cache in bfloat16, each seed has a point.
pick(attention, method, cache, column) = \
  ((method eq 'none' || strcol(1) eq attention) && strcol(2) eq method && strcol(7) eq cache) \
  ? column : NaN
set datafile missing NaN
stats csv using (pick('', 'none', 'float32', $9)) every ::1 nooutput
base = STATS_mean
stats csv using (strcol(12) eq '' ? 0 : 1) every ::1 nooutput
trained = STATS_max > 0
if (trained) {
  stats csv using (pick('', 'none', 'float32', $12)) every ::1 nooutput
  healed = STATS_mean
}
# Rotated and normed keys have no common basis, and rotated keys of MLA are decoupled.
stats csv using (strcol(2) eq 'pool' ? 1 : 0) every ::1 nooutput
pooled = STATS_max > 0
stats csv using (strcol(5) eq '' ? 0 : strcol(5) + 0) every ::1 nooutput
rotary = STATS_max > 0

set border 3 lc rgb '#888888'
set tics nomirror textcolor rgb '#444444'
set grid ytics lc rgb '#dddddd'
set logscale x 2
set xtics (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
set xlabel 'cache bytes per position'
unset key
set label 1 pooled ? '●  GQA, heads pooled' : '●  GQA, common basis by activations' at screen 0.075, 0.11 textcolor rgb '#d1495b'
set label 2 '◆  the source' at screen 0.8, 0.11 textcolor rgb '#444444'
set label 3 '■  MLA, activation SVD' at screen 0.44, 0.11 textcolor rgb '#2e6f95'
if (rotary) {
  set label 4 '▲  MLA, weight SVD' at screen 0.075, 0.07 textcolor rgb '#b97f1f'
  set label 5 '★  MLA, activation SVD, frequencies folded' at screen 0.44, 0.07 textcolor rgb '#7a5195'
}
set label 6 'cache in  ━━  bfloat16   ····  float32   ╌╌╌  int8   ╌·╌·  int4' at screen 0.075, (rotary ? 0.03 : 0.06) textcolor rgb '#444444'
set style line 1 pt 7 ps 0.8 lw 2 lc rgb '#d1495b'
set style line 2 pt 13 ps 1.4 lc rgb '#444444'
set style line 3 pt 5 ps 0.8 lw 2 lc rgb '#2e6f95'
set style line 4 pt 9 ps 0.9 lw 2 lc rgb '#e09f3e'
set style line 5 pt 3 ps 0.8 lw 2 lc rgb '#7a5195'
# The series of the line styles, one after the other.
attentions = 'gqa any mla mla mla'
methods = (pooled ? 'pool' : 'activation').' none activation weight folded'
of(k, cache, column) = pick(word(attentions, k), word(methods, k), cache, column)
n = rotary ? 5 : 3
# The other formats of the cache, and the dashes of their lines.
others = 'float32 int8 int4'
dashes = '3 2 4'

set multiplot layout 1,(trained ? 2 : 1) margins 0.075,0.98,0.28,0.92 spacing 0.1
set title sprintf('As converted, to %g above the source', span)
set yrange [base - span / 25 : base + span]
set arrow 1 from graph 0, first base to graph 1, first base nohead dt 3 lc rgb '#444444'
set ylabel 'held-out loss, nats per token'
plot \
  for [f=1:3] for [k=1:n] csv using (of(k, word(others, f), $8)):9 every ::1 \
    smooth unique with linespoints ls k dt int(word(dashes, f)) lw 1 ps 0.4, \
  for [k=1:n] csv using (of(k, 'bfloat16', $8)):9 every ::1 smooth unique with linespoints ls k

if (trained) {
  set title sprintf('After the same training of each, to %g above the source', healed_span)
  unset label
  unset ylabel
  set yrange [healed - healed_span / 10 : healed + healed_span]
  set arrow 1 from graph 0, first healed to graph 1, first healed nohead dt 3 lc rgb '#444444'
  plot \
    for [f=1:3] for [k=1:n] csv using (of(k, word(others, f), $8)):12 every ::1 \
      smooth unique with linespoints ls k dt int(word(dashes, f)) lw 1 ps 0.4, \
    for [k=1:n] csv using (of(k, 'bfloat16', $8)):12 every ::1 smooth unique with lines ls k, \
    for [k=1:n] csv using (of(k, 'bfloat16', $8)):12 every ::1 with points ls k
}
unset multiplot
