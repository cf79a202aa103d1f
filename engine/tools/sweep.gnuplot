# The picture of a sweep: gnuplot -c engine/tools/sweep.gnuplot FILE.csv FILE.svg
csv = ARG1
set datafile separator ','
set terminal svg size 960,560 font 'DejaVu Sans,15' background 'white'
set output ARG2

set title "Held-out loss against cache bytes, one MHA model converted" offset 0,-0.3
set xlabel 'cache bytes per position (all layers)'
set ylabel 'held-out loss, nats per byte'
set logscale x 2
set grid ytics lc rgb '#dddddd' lw 1
set border 3 lc rgb '#888888'
set tics nomirror
set xtics rotate by 0
set key outside right top vertical Left reverse spacing 1.3 samplen 2.2

# The column of loss before or after healing, where attention and method are the named ones.
pick(attention, method, column) = \
  (strcol(1) eq attention && strcol(2) eq method) ? column : NaN

# Pooled heads before healing are far off the scale that the rest needs.
stats csv using (pick('mha', 'none', $7)) every ::1 nooutput
base = STATS_min
set yrange [base - 0.06 : base + 0.50]

set label 1 sprintf('MHA as it is: %.3f', base) at graph 0.99, first base right offset 0,-0.7 \
  textcolor rgb '#444444'
set arrow 1 from graph 0, first base to graph 1, first base nohead dt 3 lc rgb '#444444'

plot \
  csv using (pick('gqa', 'pool', $6)):7 every ::1 with linespoints pt 6 ps 0.9 lw 2 dt 2 lc rgb '#d1495b' \
    title 'GQA, pooled', \
  csv using (pick('gqa', 'pool', $6)):8 every ::1 with linespoints pt 7 ps 0.9 lw 2 lc rgb '#d1495b' \
    title 'GQA, healed', \
  csv using (pick('mla', 'weight', $6)):7 every ::1 with linespoints pt 8 ps 0.9 lw 2 dt 2 lc rgb '#e8a33d' \
    title 'MLA, weight SVD', \
  csv using (pick('mla', 'weight', $6)):8 every ::1 with linespoints pt 9 ps 0.9 lw 2 lc rgb '#e8a33d' \
    title 'MLA, weight SVD, healed', \
  csv using (pick('mla', 'activation', $6)):7 every ::1 with linespoints pt 4 ps 0.9 lw 2 dt 2 lc rgb '#2e6f95' \
    title 'MLA, activation SVD', \
  csv using (pick('mla', 'activation', $6)):8 every ::1 with linespoints pt 5 ps 0.9 lw 2 lc rgb '#2e6f95' \
    title 'MLA, activation SVD, healed', \
  csv using (pick('mha', 'none', $6)):8 every ::1 with points pt 7 ps 1.2 lc rgb '#444444' \
    title 'MHA, trained on as much'
