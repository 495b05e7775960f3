'use strict';
// run_page_curves.js - plots of curves over steps, as inline SVG that fits any width.
//
// A plot is { id, title, note, empty, figure, lines }: `figure` prints a value, `empty` is shown
// if there is nothing to draw. A line is { run, series, raw, dots }: `run` has label, color, dashes
// and shown; `series` is a curve of trainer/metrics/curve.h; `raw`, if there is one, is drawn thin behind;
// `dots`, if there are any, are series whose points are drawn one by one.
// Labels stand beside the drawing and below it, never under a curve.

const curves = (() => {
    const { element, svg, table } = page;

    const WIDTH = 1000; // of the area that is stretched over the plot
    const HEIGHT = 180;
    const ABOVE = 16;
    const BELOW = 20;
    const LEVELS = 5; // lines across, about
    const LETTER = 7; // pixels of a tick's letter, at most
    const ROOM = 400; // pixels that the ticks below are made for,
    const LITTLE_ROOM = 240; // or, at the narrowest, half of them

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

    // From the least to the greatest with a margin of that share. If there is no extent, or one
    // that doubles can hardly divide, the result is an interval around it.
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

    // A scale is { low, high, log }. A logarithmic one has positive values only.
    function logScale({ low, high }, share) {
        const factor = Math.max((high / low) ** share, low === high ? 1.05 : 1);
        return { low: low / factor, high: high * factor, log: true };
    }

    function place({ low, high, log }, value, length) {
        return log ? length * Math.log(value / low) / Math.log(high / low)
            : length * (value - low) / (high - low);
    }

    // The inverse: the value at a share of the length.
    function valueAtShare({ low, high, log }, share) {
        return log ? low * (high / low) ** share : low + share * (high - low);
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

    // Where a logarithmic scale spans decades, powers of ten, and 2 and 5 times those if few.
    function scaleLevels(scale, n) {
        const decades = Math.log10(scale.high / scale.low);
        if (!scale.log || !(decades >= 1))
            return levels(scale, n);
        const stride = Math.ceil(decades / (n + 2));
        const found = [];
        const last = Math.floor(Math.log10(scale.high));
        for (let power = Math.floor(Math.log10(scale.low)); power <= last; power++) {
            for (const factor of decades < 2.5 ? [1, 2, 5] : [1]) {
                const value = Number(`${factor}e${power}`);
                if (power % stride === 0 && value >= scale.low && value <= scale.high)
                    found.push(value);
            }
        }
        return found;
    }

    function seriesOf(line) {
        return line.raw ? [line.series, line.raw] : [line.series];
    }

    // `log`, { x, y }, asks for logarithmic scales; a scale that cannot be one stays linear.
    function scalesOf(lines, log) {
        const steps = [];
        const values = [];
        for (const series of lines.flatMap((line) => [...seriesOf(line), ...line.dots ?? []])) {
            for (let i = 0; i < series.steps.length; i++) {
                steps.push(series.steps[i], lastOf(series, i));
                values.push(least(series, i), greatest(series, i));
            }
        }
        const scaleOf = (all, share, around, wanted) => {
            const bare = wanted ? extent(all, 0, () => 0) : null;
            return bare?.low > 0 ? logScale(bare, share) : extent(all, share, around);
        };
        const several = steps.some((step) => step !== steps[0]);
        return {
            x: scaleOf(steps, 0, () => 0.5, log.x && several),
            y: scaleOf(values, 0.05, (size) => Math.max(size * 0.05, 1e-9), log.y),
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

    // Lines of no length again.
    function dots(series, scales, run) {
        const points = series.values.map((value, i) => point(scales, middle(series, i), value));
        return svg('path', {
            class: looksOf(run, 'dots'), d: points.map((at) => `M${at}L${at}`).join(''),
        });
    }

    function lineParts(line, scales) {
        const behind = line.raw ?? line.series;
        return [
            band(behind, scales, line.run),
            line.raw ? path(line.raw, scales, looksOf(line.run, 'raw')) : null,
            path(line.series, scales, looksOf(line.run, 'curve')),
            ...(line.dots ?? []).map((series) => dots(series, scales, line.run)),
        ];
    }

    // ---- Ticks ------------------------------------------------------------------------------

    function levelPlace(scales, value) {
        return ABOVE + HEIGHT - place(scales.y, value, HEIGHT);
    }

    function levelLines(scales) {
        return scaleLevels(scales.y, LEVELS).map((value) => {
            const y = levelPlace(scales, value);
            return svg('line', { class: 'grid-line', x1: 0, x2: '100%', y1: y, y2: y });
        });
    }

    // The labels of those lines, in a drawing of their own.
    function levelLabels(plot, scales) {
        const labels = scaleLevels(scales.y, LEVELS).map((value) =>
            ({ text: plot.figure(value), y: levelPlace(scales, value) }));
        const width = LETTER * Math.max(0, ...labels.map(({ text }) => text.length));
        return svg('svg', {
            class: 'levels', 'aria-hidden': 'true', width, height: ABOVE + HEIGHT + BELOW,
        }, ...labels.map(({ text, y }) =>
            svg('text', { class: 'tick level', x: width, y: y + 4 }, text)));
    }

    // A round step in little room.
    function roundStep(step) {
        const [size, letter] = [[1e6, 'M'], [1e3, 'k'], [1, '']].find(([unit]) =>
            step % unit === 0 && step >= unit);
        return step < 1e4 ? page.exact(step) : page.exact(step / size) + letter;
    }

    // The first step, the last, and round ones between them that leave both room.
    function stepTicks(scales) {
        const { low, high } = scales.x;
        const y = ABOVE + HEIGHT + 15;
        const tick = (x, step, more, text = page.exact(step)) =>
            svg('text', { class: `tick ${more}`, x, y }, text);
        const first = scales.x.log ? Math.round(low) : low;
        const last = scales.x.log ? Math.round(high) : high;
        if (!Number.isInteger(low) && !scales.x.log)
            return [tick('50%', (low + high) / 2, 'only')];
        const width = LETTER * Math.min(page.exact(last).length, 5) + 20;
        const fits = (step, room) => {
            const at = place(scales.x, step, room);
            return at >= LETTER * page.exact(first).length + width / 2 &&
                at <= room - LETTER * page.exact(last).length - width / 2;
        };
        const between = scaleLevels(scales.x, Math.floor(ROOM / width))
            .filter((step) => Number.isInteger(step) && fits(step, ROOM));
        return [
            tick(0, first, 'first'),
            ...between.map((step, i) => tick(`${place(scales.x, step, 100)}%`, step,
                i % 2 === 0 || !fits(step, LITTLE_ROOM) ? 'between odd' : 'between',
                roundStep(step))),
            tick('100%', last, 'last'),
        ];
    }

    function draw(plot, lines, scales, cursor) {
        const area = svg('svg', {
            class: 'area', x: 0, y: ABOVE, width: '100%', height: HEIGHT,
            viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none',
        }, ...lines.flatMap((line) => lineParts(line, scales)), cursor);
        const bottom = ABOVE + HEIGHT;
        const drawing = svg('svg', {
            class: 'curves', role: 'img', height: bottom + BELOW,
            'aria-label': summary(plot, lines),
        }, ...levelLines(scales), area,
        svg('line', { class: 'axis', x1: 0, x2: '100%', y1: bottom, y2: bottom }),
        ...stepTicks(scales));
        return element('div', { class: 'drawing' }, levelLabels(plot, scales), drawing);
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

    function stepUnder(event, room, scale) {
        const { left, width } = room.querySelector('.curves').getBoundingClientRect();
        const share = Math.min(Math.max((event.clientX - left) / width, 0), 1);
        return Math.round(valueAtShare(scale, share));
    }

    // A figure's node, redraw() for when other runs or scales are shown, and move(step) for the
    // cursor. `log` is what scalesOf() takes and may change. onStep(step) is called with where
    // the pointer is.
    function figure(plot, log, onStep) {
        const filled = plot.lines.filter((line) => line.series.steps.length > 0);
        const room = element('div', {});
        const readouts = element('ul', {
            class: 'readouts', 'aria-label': `${plot.title}, figures`,
        });
        const linear = element('p', { class: 'note' },
            'A linear scale: not all values are above 0.');
        const cursor = svg('line', { class: 'cursor-line', y1: 0, y2: HEIGHT });
        let shown = [];
        let scales = null;
        let step = 0;

        function move(to) {
            step = to;
            if (scales) {
                const { low, high } = scales.x;
                const x = place(scales.x, Math.min(Math.max(step, low), high), WIDTH);
                cursor.setAttribute('x1', x);
                cursor.setAttribute('x2', x);
            }
            readouts.replaceChildren(...shown.map((line) => readout(plot, line, step)));
        }

        function redraw() {
            shown = filled.filter((line) => line.run.shown);
            scales = shown.length > 0 ? scalesOf(shown, log) : null;
            linear.hidden = !scales || !log.y || scales.y.log;
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
                plot.note ? element('p', { class: 'note' }, plot.note) : null, linear),
            room, readouts, filled.length > 0 ? alternative(plot, filled) : null);
        redraw();
        return { node, redraw, move };
    }

    return { figure, swatch };
})();
