# Plot of context_curve's measurements: gnuplot -c context.gnuplot CSV SVG [CONTEXT LABEL]...
set terminal svg size 960,420 font "sans,13" background "white"
set output ARG2
set datafile separator ","
set datafile missing NaN
set logscale x 2
set logscale y 10
set xrange [64:65536]
set grid
set multiplot layout 1,2
set xlabel "positions in the cache"
set xtics ("64" 64, "256" 256, "1k" 1024, "4k" 4096, "16k" 16384, "64k" 65536)
kinds = "'MHA' 'GQA G=8' 'MLA r=64'"
of(kind, column) = (strcol(1) eq kind ? column : NaN)

set title "Decoding, one sequence"
set ylabel "tokens/s"
set key bottom left
array marks[4] = [ARG3, ARG4, ARG5, ARG6]
do for [i = 1:2] {
  if (strlen(marks[2 * i - 1]) > 0) {
    at = real(marks[2 * i - 1])
    set arrow i from at, graph 0 to at, graph 1 nohead dashtype 2 linecolor "gray40"
    if (at < 2048) {
      set label i "MLA ".marks[2 * i] at at, graph (0.98 - 0.06 * i) left offset 0.5, 0
    } else {
      set label i "MLA ".marks[2 * i] at at, graph (0.98 - 0.06 * i) right offset -0.5, 0
    }
  }
}
plot for [kind in kinds] ARG1 using 2:(of(kind, $3)) every ::1 with linespoints linewidth 2 \
  title kind

unset arrow
unset label
set title "Its cache"
set ylabel "MiB"
set key top left
plot for [kind in kinds] ARG1 using 2:(of(kind, $4 / 1048576.0)) every ::1 with linespoints \
  linewidth 2 title kind
unset multiplot
