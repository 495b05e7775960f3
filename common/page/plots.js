'use strict';
// plots.js - bar plots as inline SVG. Lengths are shares of the width, so that a plot fits any
// screen and paper while its letters keep their size.
//
// A plot is { id, title, note, noun, bars, empty }: `noun` heads the names in its table,
// `empty` is said if there are no bars. A bar is { name, tick, value, shown, text, full }:
// `name` says what it is of, `tick` the same in little room, `value` how long it is, `text` its
// figures in words, `shown` the same in little room, `full` the length of everything, if there
// is one.

const plots = (() => {
    const { element, svg, table, rove } = page;

    const COLUMN_HEIGHT = 112;
    const ABOVE_COLUMNS = 20;
    const BELOW_COLUMNS = 22;
    const LINE_HEIGHT = 40;
    const FEWEST_SLOTS = 6; // so that a few columns are not broad as walls
    const DENSE = 9; // more columns than this leave out labels where there is little room
    const CROWDED = 24; // more than this have ticks under every eighth, and no values

    function label(bar) {
        return `${bar.name}: ${bar.text}`;
    }

    function barGroup(bar, ...parts) {
        const attributes = { class: 'bar', role: 'img', 'aria-label': label(bar) };
        return svg('g', attributes, svg('title', {}, label(bar)), ...parts);
    }

    // ---- Columns side by side: histograms ---------------------------------------------------

    function column(bar, i, n, largest) {
        const slots = Math.max(n, FEWEST_SLOTS);
        const left = 100 * (i + (slots - n) / 2) / slots;
        const middle = `${left + 50 / slots}%`;
        const share = largest > 0 ? bar.value / largest : 0;
        const height = bar.value > 0 ? Math.max(share * COLUMN_HEIGHT, 1.5) : 0;
        const bottom = ABOVE_COLUMNS + COLUMN_HEIGHT;
        const step = n > CROWDED ? 8 : 1;
        const tick = i % step === 0 ? bar.tick : '';
        const value = bar.value > 0 && step === 1 ? bar.shown : '';
        const tickClass = i % (2 * step) === 0 ? 'tick' : 'tick odd';
        return barGroup(bar,
            svg('rect', {
                class: 'slot', x: `${left}%`, width: `${100 / slots}%`, y: 0,
                height: bottom + BELOW_COLUMNS,
            }),
            svg('rect', {
                class: 'mark', x: `${left + 10 / slots}%`, width: `${80 / slots}%`,
                y: bottom - height, height, rx: 1,
            }),
            svg('text', { class: 'value', x: middle, y: bottom - height - 5 }, value),
            svg('text', { class: tickClass, x: middle, y: bottom + 15 }, tick));
    }

    function drawColumns(plot) {
        const n = plot.bars.length;
        const largest = Math.max(...plot.bars.map((bar) => bar.value));
        const groups = plot.bars.map((bar, i) => column(bar, i, n, largest));
        const bottom = ABOVE_COLUMNS + COLUMN_HEIGHT;
        const axis = svg('line', { class: 'axis', x1: 0, x2: '100%', y1: bottom, y2: bottom });
        const drawing = svg('svg', {
            class: n > DENSE ? 'columns dense' : 'columns', width: '100%',
            height: bottom + BELOW_COLUMNS,
        }, ...groups, axis);
        return { drawing, groups };
    }

    // ---- Lines one below the other: things with names ---------------------------------------

    function line(bar, i, largest) {
        const width = (value) => `${largest > 0 ? 100 * value / largest : 0}%`;
        const y = i * LINE_HEIGHT;
        const mark = { y: y + 20, height: 10, rx: 1 };
        return barGroup(bar,
            svg('rect', { class: 'slot', x: 0, width: '100%', y, height: LINE_HEIGHT }),
            svg('text', { class: 'name', x: 0, y: y + 14 }, bar.tick),
            svg('text', { class: 'figure', x: '100%', y: y + 14 }, bar.shown),
            svg('rect', { class: 'track', x: 0, width: width(bar.full ?? largest), ...mark }),
            svg('rect', { class: 'mark', x: 0, width: width(bar.value), ...mark }));
    }

    function drawLines(plot) {
        const largest = Math.max(...plot.bars.map((bar) => Math.max(bar.value, bar.full ?? 0)));
        const groups = plot.bars.map((bar, i) => line(bar, i, largest));
        const drawing = svg('svg', {
            class: 'lines', width: '100%', height: plot.bars.length * LINE_HEIGHT,
        }, ...groups);
        return { drawing, groups };
    }

    // ---- Around both ------------------------------------------------------------------------

    // The bar that the pointer or the keyboard is at, in words: a finger has no tooltips.
    function readout(groups, bars) {
        const line = element('p', { class: 'readout', 'aria-hidden': 'true' }, '\u00a0');
        groups.forEach((group, i) => {
            for (const event of ['pointerenter', 'focus'])
                group.addEventListener(event, () => { line.textContent = label(bars[i]); });
        });
        return line;
    }

    function alternative(plot) {
        const columns = [{ title: plot.noun }, { title: 'Figures', number: true }];
        const rows = plot.bars.map((bar) => [bar.name, bar.text]);
        return element('details', {}, element('summary', {}, 'As a table'),
            table(plot.title, columns, rows));
    }

    function figure(plot, draw) {
        const heading = element('figcaption', {}, element('h3', {}, plot.title),
            plot.note ? element('p', { class: 'note' }, plot.note) : null);
        const made = element('figure', { class: 'plot', 'data-plot': plot.id }, heading);
        if (plot.bars.length === 0) {
            made.append(element('p', { class: 'nothing' }, plot.empty));
            return made;
        }
        const { drawing, groups } = draw(plot);
        drawing.setAttribute('role', 'group');
        const bars = page.counted(groups.length, 'bar');
        drawing.setAttribute('aria-label',
            `${plot.title}: ${bars}, arrow keys move between them`);
        rove(groups);
        made.append(drawing, readout(groups, plot.bars), alternative(plot));
        return made;
    }

    return {
        columns: (plot) => figure(plot, drawColumns),
        lines: (plot) => figure(plot, drawLines),
    };
})();
