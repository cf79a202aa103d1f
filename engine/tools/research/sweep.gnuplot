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
# whatever it is. Rows that differ only in their seed are drawn as dots, and their mean as the line:
# whole for a cache in bfloat16, dotted for one in float32, dashed for one in int8, and dash-dotted
# for one in int4.
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
# Rotated keys have no common basis, and MLA decoupled ones.
stats csv using (strcol(5) eq '' ? 0 : strcol(5) + 0) every ::1 nooutput
rotary = STATS_max > 0

set border 3 lc rgb '#888888'
set tics nomirror textcolor rgb '#444444'
set grid ytics lc rgb '#dddddd'
set logscale x 2
set xtics (64, 128, 256, 512, 1024, 2048, 4096, 8192)
set xlabel 'cache bytes per position: bfloat16 (lines), float32 (dotted), int8 (dashed), int4 (dash-dotted)' font ',12'
unset key
set label 1 '●  GQA, heads pooled' at screen 0.075, 0.075 textcolor rgb '#d1495b'
if (rotary) {
  set label 2 '★  MLA, activation SVD, frequencies folded' at screen 0.63, 0.075 textcolor rgb '#7a5195'
} else {
  set label 2 '▼  GQA, common basis by weights' at screen 0.29, 0.075 textcolor rgb '#7a5195'
  set label 3 '★  GQA, common basis by activations' at screen 0.63, 0.075 textcolor rgb '#3f7d4f'
}
set label 4 '▲  MLA, weight SVD' at screen 0.29, 0.03 textcolor rgb '#b97f1f'
set label 5 '■  MLA, activation SVD' at screen 0.63, 0.03 textcolor rgb '#2e6f95'
set label 6 '◆  the source' at screen 0.075, 0.03 textcolor rgb '#444444'
set style line 1 pt 7 ps 0.8 lw 2 lc rgb '#d1495b'
set style line 2 pt 11 ps 0.9 lw 2 lc rgb '#7a5195'
set style line 3 pt 3 ps 0.8 lw 2 lc rgb '#3f7d4f'
set style line 4 pt 9 ps 0.9 lw 2 lc rgb '#e09f3e'
set style line 5 pt 5 ps 0.8 lw 2 lc rgb '#2e6f95'
set style line 6 pt 13 ps 1.4 lc rgb '#444444'
set style line 7 pt 3 ps 0.8 lw 2 lc rgb '#7a5195'
# Of the line styles, one after the other; and those that are drawn.
attentions = 'gqa gqa gqa mla mla any mla'
methods = 'pool weight activation weight activation none folded'
drawn = rotary ? '1 4 5 6 7' : '1 2 3 4 5 6'
style(k) = int(word(drawn, k) + 0)
of(k, cache, column) = pick(word(attentions, style(k)), word(methods, style(k)), cache, column)
n = words(drawn)

set multiplot layout 1,(trained ? 2 : 1) margins 0.075,0.98,0.26,0.91 spacing 0.1
set title sprintf('As converted, to %g above the source', span)
set yrange [base - span / 25 : base + span]
set arrow 1 from graph 0, first base to graph 1, first base nohead dt 3 lc rgb '#444444'
set ylabel 'held-out loss, nats per token'
plot \
  for [k=1:n] csv using (of(k, 'float32', $8)):9 every ::1 \
    smooth unique with lines ls style(k) dt 3 lw 1, \
  for [k=1:n] csv using (of(k, 'int8', $8)):9 every ::1 \
    smooth unique with lines ls style(k) dt 2 lw 1, \
  for [k=1:n] csv using (of(k, 'int4', $8)):9 every ::1 \
    smooth unique with lines ls style(k) dt 4 lw 1, \
  for [k=1:n] csv using (of(k, 'bfloat16', $8)):9 every ::1 \
    smooth unique with linespoints ls style(k)

if (trained) {
  set title sprintf('After the same training of each, to %g above the source', healed_span)
  unset ylabel
  set yrange [healed - healed_span / 10 : healed + healed_span]
  set arrow 1 from graph 0, first healed to graph 1, first healed nohead dt 3 lc rgb '#444444'
  plot \
    for [k=1:n] csv using (of(k, 'float32', $8)):12 every ::1 \
      smooth unique with lines ls style(k) dt 3 lw 1, \
    for [k=1:n] csv using (of(k, 'int8', $8)):12 every ::1 \
      smooth unique with lines ls style(k) dt 2 lw 1, \
    for [k=1:n] csv using (of(k, 'int4', $8)):12 every ::1 \
      smooth unique with lines ls style(k) dt 4 lw 1, \
    for [k=1:n] csv using (of(k, 'bfloat16', $8)):12 every ::1 \
      smooth unique with lines ls style(k), \
    for [k=1:n] csv using (of(k, 'bfloat16', $8)):12 every ::1 with points ls style(k)
}
unset multiplot
