# The picture of a sweep:   gnuplot -c engine/tools/sweep.gnuplot FILE.csv FILE.svg
csv = ARG1
set datafile separator ','
set terminal svg size 1060,500 font 'DejaVu Sans,15' background 'white'
set output ARG2

# A column of the rows with this attention and method.
pick(attention, method, column) = \
  (strcol(1) eq attention && strcol(2) eq method) ? column : NaN
stats csv using (pick('mha', 'none', $7)) every ::1 nooutput
base = STATS_min

set border 3 lc rgb '#888888'
set tics nomirror textcolor rgb '#444444'
set grid ytics lc rgb '#dddddd'
set logscale x 2
set xrange [*:5000]
set xtics (64, 128, 256, 512, 1024, 2048, 4096)
set xlabel 'cache bytes per position'
unset key
set label 1 '●  GQA, heads pooled' at screen 0.12, 0.04 textcolor rgb '#d1495b'
set label 2 '▲  MLA, weight SVD' at screen 0.36, 0.04 textcolor rgb '#b97f1f'
set label 3 '■  MLA, activation SVD' at screen 0.58, 0.04 textcolor rgb '#2e6f95'
set label 4 '◆  MHA' at screen 0.84, 0.04 textcolor rgb '#444444'
set arrow 1 from graph 0, first base to graph 1, first base nohead dt 3 lc rgb '#444444'
set style line 1 pt 7 ps 0.8 lw 2 lc rgb '#d1495b'
set style line 2 pt 9 ps 0.9 lw 2 lc rgb '#e09f3e'
set style line 3 pt 5 ps 0.8 lw 2 lc rgb '#2e6f95'
set style line 4 pt 13 ps 1.4 lc rgb '#444444'

set multiplot layout 1,2 margins 0.075,0.98,0.22,0.91 spacing 0.1
set title 'As converted'
set ylabel 'held-out loss, nats per byte'
plot \
  csv using (pick('gqa', 'pool', $6)):7 every ::1 with linespoints ls 1, \
  csv using (pick('mla', 'weight', $6)):7 every ::1 with linespoints ls 2, \
  csv using (pick('mla', 'activation', $6)):7 every ::1 with linespoints ls 3, \
  csv using (pick('mha', 'none', $6)):7 every ::1 with points ls 4

set title 'After the same short training of each'
unset ylabel
plot \
  csv using (pick('gqa', 'pool', $6)):8 every ::1 with linespoints ls 1, \
  csv using (pick('mla', 'weight', $6)):8 every ::1 with linespoints ls 2, \
  csv using (pick('mla', 'activation', $6)):8 every ::1 with linespoints ls 3, \
  csv using (pick('mha', 'none', $6)):8 every ::1 with points ls 4
unset multiplot
