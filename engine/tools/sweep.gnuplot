# The picture of a sweep:   gnuplot -c engine/tools/sweep.gnuplot FILE.csv FILE.svg
csv = ARG1
set datafile separator ','
set terminal svg size 1060,500 font 'DejaVu Sans,15' background 'white'
set output ARG2

# A column of the rows with this attention, method and format of the cache. Rows that differ only in
# their seed are drawn as dots, and their mean as the line: whole for a cache in bfloat16, dotted for
# one in float32.
pick(attention, method, cache, column) = \
  (strcol(1) eq attention && strcol(2) eq method && strcol(6) eq cache) ? column : NaN
set datafile missing NaN
stats csv using (pick('mha', 'none', 'float32', $8)) every ::1 nooutput
base = STATS_mean
stats csv using (pick('mha', 'none', 'float32', $11)) every ::1 nooutput
healed = STATS_mean

set border 3 lc rgb '#888888'
set tics nomirror textcolor rgb '#444444'
set grid ytics lc rgb '#dddddd'
set logscale x 2
set xrange [*:10000]
set xtics (64, 128, 256, 512, 1024, 2048, 4096, 8192)
set xlabel 'cache bytes per position: in bfloat16 (whole lines), in float32 (dotted)'
unset key
set label 1 '●  GQA, heads pooled' at screen 0.075, 0.075 textcolor rgb '#d1495b'
set label 2 '▼  GQA, common basis by weights' at screen 0.29, 0.075 textcolor rgb '#7a5195'
set label 3 '★  GQA, common basis by activations' at screen 0.63, 0.075 textcolor rgb '#3f7d4f'
set label 4 '▲  MLA, weight SVD' at screen 0.29, 0.03 textcolor rgb '#b97f1f'
set label 5 '■  MLA, activation SVD' at screen 0.63, 0.03 textcolor rgb '#2e6f95'
set label 6 '◆  MHA' at screen 0.075, 0.03 textcolor rgb '#444444'
set style line 1 pt 7 ps 0.8 lw 2 lc rgb '#d1495b'
set style line 2 pt 11 ps 0.9 lw 2 lc rgb '#7a5195'
set style line 3 pt 3 ps 0.8 lw 2 lc rgb '#3f7d4f'
set style line 4 pt 9 ps 0.9 lw 2 lc rgb '#e09f3e'
set style line 5 pt 5 ps 0.8 lw 2 lc rgb '#2e6f95'
set style line 6 pt 13 ps 1.4 lc rgb '#444444'
attentions = 'gqa gqa gqa mla mla mha'
methods = 'pool weight activation weight activation none'

set multiplot layout 1,2 margins 0.075,0.98,0.26,0.91 spacing 0.1
set title 'As converted, to 0.5 above the MHA'
set yrange [base - 0.02 : base + 0.5]
set arrow 1 from graph 0, first base to graph 1, first base nohead dt 3 lc rgb '#444444'
set ylabel 'held-out loss, nats per byte'
plot \
  for [i=1:6] csv using (pick(word(attentions, i), word(methods, i), 'float32', $7)):8 every ::1 \
    smooth unique with lines ls i dt 3 lw 1, \
  for [i=1:6] csv using (pick(word(attentions, i), word(methods, i), 'bfloat16', $7)):8 every ::1 \
    smooth unique with linespoints ls i

set title 'After the same training of each, to 0.05 above the MHA'
unset ylabel
set yrange [healed - 0.005 : healed + 0.05]
set arrow 1 from graph 0, first healed to graph 1, first healed nohead dt 3 lc rgb '#444444'
plot \
  for [i=1:6] csv using (pick(word(attentions, i), word(methods, i), 'float32', $7)):11 every ::1 \
    smooth unique with lines ls i dt 3 lw 1, \
  for [i=1:6] csv using (pick(word(attentions, i), word(methods, i), 'bfloat16', $7)):11 every ::1 \
    smooth unique with lines ls i, \
  for [i=1:6] csv using (pick(word(attentions, i), word(methods, i), 'bfloat16', $7)):11 every ::1 \
    with points ls i
unset multiplot
