'use strict';
// run_page_curves.js - plots of curves over steps, as inline SVG that fits any width.
//
// A plot is { id, title, note, empty, figure, lines }: `figure` prints a value, `empty` is said
// if nothing is to be drawn. A line is { run, series, raw }: `run` has label, color, dashes and
// shown; `series` is what trainer/series.h says; `raw`, if there is one, is drawn thin behind.

const curves = (() => {
    const { element, svg, table } = page;

    const WIDTH = 1000; // of the area that is stretched over the plot
    const HEIGHT = 180;
    const ABOVE = 16;
    const BELOW = 20;
    const LEVELS = 4; // lines across, about

    function looksOf(run, kind) {
        return `${kind} r${run.color} d${run.dashes}`;
    }

    function swatch(run) {
        return svg('svg', { class: 'swatch', 'aria-hidden': 'true' }, svg('line', {
            class: looksOf(run, 'curve'), x1: 2, x2: '95%', y1: '50%', y2: '50%',
        }));
    }

    // ---- Series -----------------------------------------------------------------------------

    function least(series, i) {
        return series.least ? series.least[i] : series.values[i];
    }

    function greatest(series, i) {
        return series.greatest ? series.greatest[i] : series.values[i];
    }

    function lastOf(series, i) {
        return series.lasts ? series.lasts[i] : series.steps[i];
    }

    // Where a bucket is drawn.
    function middle(series, i) {
        return (series.steps[i] + lastOf(series, i)) / 2;
    }

    // The last bucket that begins at `step` or before; -1 if none does.
    function bucketAt(series, step) {
        let low = -1;
        let high = series.steps.length;
        while (high - low > 1) {
            const at = Math.floor((low + high) / 2);
            if (series.steps[at] <= step)
                low = at;
            else
                high = at;
        }
        return low;
    }

    // ---- Scales -----------------------------------------------------------------------------

    // From the least to the greatest with a margin of that share. What has no extent, or one
    // that doubles can hardly divide, gets one around it.
    function extent(values, share, around) {
        let low = Infinity;
        let high = -Infinity;
        for (const value of values) {
            low = Math.min(low, value);
            high = Math.max(high, value);
        }
        const size = Math.max(Math.abs(low), Math.abs(high));
        const margin = high - low > 1e-9 * size ? (high - low) * share : around(size);
        return { low: low - margin, high: high + margin };
    }

    function place({ low, high }, value, length) {
        return length * (value - low) / (high - low);
    }

    // Round numbers inside the extent, about n.
    function levels({ low, high }, n) {
        const rough = (high - low) / n;
        const power = 10 ** Math.floor(Math.log10(rough));
        const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
        const found = [];
        for (let i = Math.ceil(low / step); i * step <= high; i++)
            found.push(Number((i * step).toPrecision(12)));
        return found;
    }

    function seriesOf(line) {
        return line.raw ? [line.series, line.raw] : [line.series];
    }

    function scalesOf(lines) {
        const steps = [];
        const values = [];
        for (const series of lines.flatMap(seriesOf)) {
            for (let i = 0; i < series.steps.length; i++) {
                steps.push(series.steps[i], lastOf(series, i));
                values.push(least(series, i), greatest(series, i));
            }
        }
        return {
            x: extent(steps, 0, () => 0.5),
            y: extent(values, 0.05, (size) => Math.max(size * 0.05, 1e-9)),
        };
    }

    // ---- Drawing ----------------------------------------------------------------------------

    function point(scales, step, value) {
        const x = place(scales.x, step, WIDTH);
        const y = HEIGHT - place(scales.y, value, HEIGHT);
        return `${x.toFixed(2)} ${y.toFixed(2)}`;
    }

    // A single value is a line of no length, which has round ends: a dot.
    function path(series, scales, looks) {
        const points = series.values.map((value, i) => point(scales, middle(series, i), value));
        const drawn = points.length === 1 ? [points[0], points[0]] : points;
        return svg('path', { class: looks, d: `M${drawn.join('L')}` });
    }

    function band(series, scales, run) {
        if (!series.least)
            return null;
        const there = series.steps.map((_, i) =>
            point(scales, middle(series, i), greatest(series, i)));
        const back = series.steps.map((_, i) =>
            point(scales, middle(series, i), least(series, i))).reverse();
        return svg('path', {
            class: looksOf(run, 'band'), d: `M${[...there, ...back].join('L')}Z`,
        });
    }

    function lineParts(line, scales) {
        const behind = line.raw ?? line.series;
        return [
            band(behind, scales, line.run),
            line.raw ? path(line.raw, scales, looksOf(line.run, 'raw')) : null,
            path(line.series, scales, looksOf(line.run, 'curve')),
        ];
    }

    function levelParts(plot, scales) {
        return levels(scales.y, LEVELS).flatMap((value) => {
            const y = ABOVE + HEIGHT - place(scales.y, value, HEIGHT);
            return [
                svg('line', { class: 'grid-line', x1: 0, x2: '100%', y1: y, y2: y }),
                svg('text', { class: 'tick level', x: 0, y: y - 3 }, plot.figure(value)),
            ];
        });
    }

    function stepTicks(scales) {
        const y = ABOVE + HEIGHT + 15;
        const tick = (x, step, more) =>
            svg('text', { class: `tick ${more}`, x, y }, page.exact(step));
        const { low, high } = scales.x;
        return !Number.isInteger(low) ? [tick('50%', (low + high) / 2, 'only')]
            : [tick(0, low, ''), tick('100%', high, 'last')];
    }

    function draw(plot, lines, scales, cursor) {
        const area = svg('svg', {
            class: 'area', x: 0, y: ABOVE, width: '100%', height: HEIGHT,
            viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none',
        }, ...lines.flatMap((line) => lineParts(line, scales)), cursor);
        const bottom = ABOVE + HEIGHT;
        return svg('svg', {
            class: 'curves', role: 'img', width: '100%', height: bottom + BELOW,
            'aria-label': summary(plot, lines),
        }, area, ...levelParts(plot, scales),
        svg('line', { class: 'axis', x1: 0, x2: '100%', y1: bottom, y2: bottom }),
        ...stepTicks(scales));
    }

    // ---- In words ---------------------------------------------------------------------------

    function ends(plot, { run, series }) {
        const n = series.steps.length;
        return `${run.label}: ${plot.figure(series.values[0])} at step ` +
            `${page.exact(series.steps[0])}, ${plot.figure(series.values[n - 1])} at step ` +
            `${page.exact(lastOf(series, n - 1))}`;
    }

    function summary(plot, lines) {
        return `${plot.title} over steps. ${lines.map((line) => ends(plot, line)).join('. ')}`;
    }

    function extreme(plot, series, values, isBetter) {
        const at = values.reduce((best, value, i) =>
            isBetter(value, values[best]) ? i : best, 0);
        return `${plot.figure(values[at])} at ${page.exact(series.steps[at])}`;
    }

    function alternative(plot, lines) {
        const number = (title) => ({ title, number: true });
        const rows = lines.map(({ run, series, raw }) => {
            const of = raw ?? series;
            const indices = of.steps.map((_, i) => i);
            return [
                element('bdi', {}, run.label), plot.figure(series.values[0]),
                plot.figure(series.values.at(-1)),
                extreme(plot, of, indices.map((i) => least(of, i)), (a, b) => a < b),
                extreme(plot, of, indices.map((i) => greatest(of, i)), (a, b) => a > b),
            ];
        });
        return element('details', {}, element('summary', {}, 'As a table'),
            table(plot.title, [{ title: 'Run' }, number('First'), number('Last'),
                number('Least, at step'), number('Greatest, at step')], rows));
    }

    function valueAt(plot, series, step) {
        const i = bucketAt(series, step);
        return i < 0 ? '–' : plot.figure(series.values[i]);
    }

    // After its last step a run has the figures that it ended with, and says where.
    function readout(plot, line, step) {
        const values = seriesOf(line).map((series) => valueAt(plot, series, step));
        const last = lastOf(line.series, line.series.steps.length - 1);
        const where = step > last ? ` (at ${page.exact(last)})` : '';
        return element('li', {}, swatch(line.run), element('bdi', {}, line.run.label),
            element('strong', {}, values.join(' · ') + where));
    }

    // ---- Around a plot ----------------------------------------------------------------------

    function stepUnder(event, room, { low, high }) {
        const { left, width } = room.getBoundingClientRect();
        const share = Math.min(Math.max((event.clientX - left) / width, 0), 1);
        return Math.round(low + share * (high - low));
    }

    // A figure's node, redraw() for when other runs are shown, and move(step) for the cursor.
    // onStep(step) is called with where the pointer is.
    function figure(plot, onStep) {
        const filled = plot.lines.filter((line) => line.series.steps.length > 0);
        const room = element('div', {});
        const readouts = element('ul', {
            class: 'readouts', 'aria-label': `${plot.title}, figures`,
        });
        const cursor = svg('line', { class: 'cursor-line', y1: 0, y2: HEIGHT });
        let shown = [];
        let scales = null;
        let step = 0;

        function move(to) {
            step = to;
            if (scales) {
                const x = place(scales.x, step, WIDTH);
                cursor.setAttribute('x1', x);
                cursor.setAttribute('x2', x);
            }
            readouts.replaceChildren(...shown.map((line) => readout(plot, line, step)));
        }

        function redraw() {
            shown = filled.filter((line) => line.run.shown);
            scales = shown.length > 0 ? scalesOf(shown) : null;
            room.replaceChildren(scales ? draw(plot, shown, scales, cursor)
                : element('p', { class: 'nothing' }, plot.empty));
            readouts.hidden = shown.length === 0;
            move(step);
        }

        room.addEventListener('pointermove', (event) => {
            if (scales)
                onStep(stepUnder(event, room, scales.x));
        });
        const node = element('figure', { class: 'plot', 'data-plot': plot.id },
            element('figcaption', {}, element('h3', {}, plot.title),
                plot.note ? element('p', { class: 'note' }, plot.note) : null),
            room, readouts, filled.length > 0 ? alternative(plot, filled) : null);
        redraw();
        return { node, redraw, move };
    }

    return { figure, swatch };
})();
