'use strict';
// run_page.js - a page of runs: the table in which they are chosen, plots, samples, settings.
// The figures are those of metrics.jsonl; of more than 512 steps, neighbours are taken together.

(() => {
    const { data, exact, short, counted, visible, visibleName } = page;
    const { element, byId, card, headline, table } = page;
    const N_COLORS = 8;
    const N_DASHES = 4;

    // ---- Runs and their names ---------------------------------------------------------------

    // The folder's name if it is unique, else the path, else the path and a number.
    function labelsOf(runs) {
        const isAlone = (names, i) => names.indexOf(names[i]) === names.lastIndexOf(names[i]);
        const names = runs.map((run) => visibleName(run.name));
        const paths = runs.map((run) => visibleName(run.path));
        return runs.map((_, i) => isAlone(names, i) ? names[i]
            : isAlone(paths, i) ? paths[i] : `${paths[i]} (${i + 1})`);
    }

    const labels = labelsOf(data.runs);
    const runs = data.runs.map((run, i) => ({
        ...run, label: labels[i], color: i % N_COLORS, dashes: i % N_DASHES, shown: true,
    }));

    // ---- Numbers ----------------------------------------------------------------------------

    function figure(value) {
        if (value === 0)
            return '0';
        const size = Math.abs(value);
        if (size < 1e6 && size >= 1e-3)
            return String(Number(value.toPrecision(6)));
        const [digits, power] = value.toExponential(5).split('e');
        return `${Number(digits)}e${Number(power)}`;
    }

    function rate(value) {
        return value >= 1e3 ? short(value) : figure(value);
    }

    function share(value) {
        return `${Number((100 * value).toPrecision(4))} %`;
    }

    // common/cli/human.h has the same for the terminal.
    function duration(seconds) {
        const whole = Math.round(seconds);
        const two = (n) => String(n).padStart(2, '0');
        if (whole < 60)
            return `${Number(seconds.toPrecision(3))} s`;
        if (whole < 3600)
            return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
        const minutes = Math.floor(whole / 60);
        return minutes < 1440 ? `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`
            : `${Math.floor(minutes / 1440)} d ${two(Math.floor(minutes / 60) % 24)} h`;
    }

    function orNone(value) {
        return value === null ? '–' : figure(value);
    }

    // ---- The top ----------------------------------------------------------------------------

    function fillHeader() {
        const title = runs.length === 1 ? runs[0].label : counted(runs.length, 'run');
        byId('name').append(element('bdi', {}, title));
        document.title = `${title} – Bindery training report`;
        byId('what').textContent = runs.length === 1 ? visibleName(runs[0].path)
            : runs.map((run) => run.label).join(' · ');
    }

    function lowestLoss() {
        const having = runs.filter((run) => run.last_smoothed_loss !== null);
        if (having.length === 0)
            return ['Loss', '–', 'no steps yet'];
        const best = having.reduce((low, run) =>
            run.last_smoothed_loss < low.last_smoothed_loss ? run : low);
        return ['Loss', figure(Number(best.last_smoothed_loss.toPrecision(4))),
            runs.length === 1 ? 'smoothed, at the end' : `smoothed, lowest: ${best.label}`];
    }

    // The planned number of steps, if it is known and not yet reached.
    function stepsPlanned(run) {
        const planned = run.settings?.training?.steps;
        return Number.isInteger(planned) && planned > run.last_step ? planned : null;
    }

    function stepsMade(run) {
        const planned = stepsPlanned(run);
        return planned === null ? exact(run.last_step)
            : `${exact(run.last_step)} of ${exact(planned)}`;
    }

    function longestRun() {
        const longest = runs.reduce((most, run) => run.last_step > most.last_step ? run : most);
        const planned = stepsPlanned(longest);
        const where = runs.length === 1 ? '' : ' in the longest';
        return ['Steps', exact(longest.last_step), planned !== null
            ? `of ${exact(planned)}${where}` : runs.length === 1 ? 'so far' : 'in the longest'];
    }

    function fillHeadline() {
        const sum = (key) => runs.reduce((total, run) => total + run[key], 0);
        byId('headline').append(...[
            ['Runs', exact(runs.length), 'in this page'],
            longestRun(),
            lowestLoss(),
            ['Tokens', short(sum('tokens')), 'without padding'],
            ['Time', duration(sum('seconds')), 'in steps'],
        ].map(headline));
    }

    // ---- Plots ------------------------------------------------------------------------------

    const drawn = [];
    const log = { x: false, y: false };

    function addScaleChoice(id, axis) {
        byId(id).addEventListener('change', (event) => {
            log[axis] = event.target.checked;
            drawn.forEach((plot) => plot.redraw());
        });
    }

    function showStep(step) {
        const at = Number(step);
        byId('step').value = at;
        byId('step').setAttribute('aria-valuetext', `step ${exact(at)}`);
        byId('step-shown').textContent = exact(at);
        drawn.forEach((plot) => plot.move(at));
    }

    function addPlot(where, plot) {
        const made = curves.figure(plot, log, showStep);
        drawn.push(made);
        const style = plot.wide ? 'card wide' : 'card';
        byId(where).append(element('div', { class: style }, made.node));
    }

    function linesOf(key) {
        return runs.map((run) => ({ run, series: run[key] }));
    }

    function hasAny(key) {
        return runs.some((run) => run[key].steps.length > 0);
    }

    function addCurves() {
        const add = (id, title, format, more) => addPlot('curve-plots', {
            id, title, figure: format, empty: 'Nothing to draw.', lines: linesOf(id), ...more,
        });
        add('smoothed_loss', 'Loss', figure, {
            wide: true,
            note: 'Smoothed (exponential mean, 0.98 a step) and, thin, as it was; figures in ' +
                'this order.' + (runs.some((run) => run.evals.length > 0)
                ? ' Dots are evaluations.' : ''),
            lines: runs.map((run) => ({
                run, series: run.smoothed_loss, raw: run.loss,
                dots: run.evals.map((evaluation) => evaluation.loss),
            })),
        });
        add('learning_rate', 'Learning rate', figure, {});
        add('gradient_norm', 'Gradient norm', figure, { note: 'Before clipping' });
        add('tokens_per_second', 'Tokens per second', rate, { note: 'Without padding' });
        if (hasAny('flops'))
            add('flops', 'FLOP per second', rate, {
                note: 'What the mathematics of the model asks for',
            });
        if (hasAny('mfu'))
            add('mfu', 'MFU', share, { note: 'Share of the peak that --peak-tflops gave' });
    }

    function addEvaluations() {
        const datasets = [...new Set(runs.flatMap((run) => run.evals.map((e) => e.dataset)))];
        byId('evaluation-note').textContent = datasets.length === 0
            ? 'No evaluation was written.'
            : 'Mean loss over the targets of held-out datasets.' +
                (runs.some((run) => run.more_evals) ? ' Not all datasets are shown.' : '');
        datasets.forEach((dataset, i) => addPlot('evaluation-plots', {
            id: `eval-${i}`, title: visibleName(dataset), figure, empty: 'Nothing to draw.',
            lines: runs.flatMap((run) => run.evals.filter((e) => e.dataset === dataset)
                .map((e) => ({ run, series: e.loss }))),
        }));
    }

    function fillCursor() {
        const input = byId('step');
        const steps = runs.flatMap((run) => [run.learning_rate.steps[0] ?? 0, run.last_step]);
        input.min = Math.min(...steps);
        input.max = Math.max(...steps);
        input.addEventListener('input', () => showStep(input.value));
        const most = Math.max(...runs.map((run) => run.steps));
        byId('curves-note').textContent = runs.some((run) => run.learning_rate.lasts)
            ? `Of ${exact(most)} steps neighbouring ones are drawn together: their mean, and ` +
                'from the least to the greatest as a band.'
            : 'Every step is drawn.';
        showStep(input.max);
    }

    // ---- The table of runs ------------------------------------------------------------------

    function toggle(run) {
        const input = element('input', { type: 'checkbox', checked: '' });
        input.addEventListener('change', () => {
            run.shown = input.checked;
            drawn.forEach((plot) => plot.redraw());
        });
        return element('label', {}, input, curves.swatch(run), element('bdi', {}, run.label));
    }

    function fillRuns() {
        const number = (title) => ({ title, number: true });
        const rows = runs.map((run) => [
            toggle(run), stepsMade(run), orNone(run.last_loss),
            orNone(run.last_smoothed_loss),
            short(run.tokens), duration(run.seconds),
            run.seconds > 0 ? rate(run.tokens / run.seconds) : '–',
            run.checkpoint_step === null ? '–' : exact(run.checkpoint_step),
        ]);
        byId('run-table').append(table('Runs', [{ title: 'Run' },
            ...['Step', 'Loss', 'Smoothed', 'Tokens', 'Time', 'Tokens/s', 'Saved at']
                .map(number),
        ], rows));
    }

    // ---- Samples ----------------------------------------------------------------------------

    function sampleArticle(sample) {
        return element('article', {}, element('h4', {}, `Step ${exact(sample.step)}`),
            element('p', { class: 'text' },
                element('span', { class: 'prompt' }, visible(sample.prompt)),
                visible(sample.text)),
            sample.cut ? element('p', { class: 'note' }, 'It goes on.') : null);
    }

    function sampleCard(run) {
        const left = run.n_samples - run.samples.length;
        const name = element('h3', {}, curves.swatch(run), element('bdi', {}, run.label));
        const made = card(null, name,
            left > 0 ? element('p', { class: 'note' }, `The latest ${run.samples.length} of ` +
                `${exact(run.n_samples)}`) : null,
            ...run.samples.map(sampleArticle));
        made.classList.add(`r${run.color}`);
        return made;
    }

    function fillSamples() {
        const having = runs.filter((run) => run.samples.length > 0);
        byId('samples-note').textContent = having.length === 0 ? 'No sample was written.'
            : 'The latest first; prompts are grey.';
        byId('sample-cards').append(...having.map(sampleCard));
    }

    // ---- Settings ---------------------------------------------------------------------------

    // {a: {b: 1}, c: [2]} becomes a.b = 1 and c[0] = 2.
    function flatten(value, name, found) {
        if (Array.isArray(value))
            value.forEach((item, i) => flatten(item, `${name}[${i}]`, found));
        else if (value !== null && typeof value === 'object')
            for (const [key, item] of Object.entries(value))
                flatten(item, name ? `${name}.${key}` : key, found);
        else
            found.set(name, visibleName(String(value)));
        return found;
    }

    function settingsTable(caption, names, found) {
        const columns = [{ title: 'Setting' },
            ...runs.map((run) => ({ title: element('bdi', {}, run.label) }))];
        return element('div', {
            class: 'scroll', role: 'region', 'aria-label': caption, tabindex: '0',
        }, table(caption, columns, names.map((name) => [
            element('span', { class: 'mono' }, visibleName(name)),
            ...found.map((settings) => settings.get(name) ?? '–'),
        ])));
    }

    function fillSettings() {
        const found = runs.map((run) => flatten(run.settings ?? {}, '', new Map()));
        const known = found.filter((_, i) => runs[i].settings !== null);
        const names = [...new Set(found.flatMap((settings) => [...settings.keys()]))];
        const differing = names.filter((name) =>
            known.some((settings) => settings.get(name) !== known[0].get(name)));
        byId('settings-note').textContent = known.length < runs.length
            ? 'A run without a checkpoint does not tell its settings.'
            : runs.length === 1 ? 'Those of the latest checkpoint.'
                : differing.length === 0 ? 'All runs have the same settings.'
                    : 'Those in which the runs differ.';
        if (differing.length > 0)
            byId('settings-tables').append(card(null,
                settingsTable('Settings that differ', differing, found)));
        if (names.length > 0)
            byId('settings-tables').append(element('details', { class: 'card' },
                element('summary', {}, 'All settings'),
                settingsTable('All settings', names, found)));
    }

    fillHeader();
    fillHeadline();
    fillRuns();
    addCurves();
    addEvaluations();
    addScaleChoice('log-values', 'y');
    addScaleChoice('log-steps', 'x');
    fillCursor();
    fillSamples();
    fillSettings();
})();
