'use strict';
// inspection_page_figures.js - everything of an inspection's page but the rows. The figures are
// those of `bindery inspect --json`; nothing is counted here.

(() => {
    const { data, exact, short, percent, counted, capital, visible, visibleName } = page;
    const { element, byId, card, table, list } = page;
    const { inspection, totals } = data;
    const { figures, packing, reading } = inspection;

    // What was found from some of the rows is marked.
    function about(isExact) {
        return isExact ? '' : 'about ';
    }

    function shareOf(part, whole) {
        return Number(whole) > 0 ? Number(part) / Number(whole) : 0;
    }

    function plotCard(figure, more = '') {
        return element('div', { class: `card ${more}` }, figure);
    }

    // ---- The top ----------------------------------------------------------------------------

    // The file's last two names, if it came from one, and how many ids it has.
    function tokenizerName() {
        const file = inspection.tokenizer_file?.split('/').slice(-2).join('/');
        const { name } = packing.tokenizer;
        return name !== 'bpe' ? visibleName(name)
            : `${file ? visibleName(file) : 'BPE'} of ${exact(packing.vocab_size)} ids`;
    }

    function fillHeader() {
        const path = visibleName(data.path);
        const name = path.replace(/\/+$/, '').split('/').pop() || path;
        byId('name').append(element('bdi', {}, name));
        document.title = `${name} – Bindery inspection`;
        const parts = [
            `${capital(inspection.of)} of ${counted(figures.rows, 'row')}`,
            `${exact(packing.seq_len)} tokens in a row`,
            packing.strategy,
            `tokenizer ${tokenizerName()}`,
            `${counted(totals.shards, 'shard')}`,
        ];
        byId('what').textContent = parts.join(' · ');
        byId('path').textContent = path === name ? '' : path;
    }

    function saved(share) {
        return Number(share) < 0 ? `${percent(-share)} more` : percent(share);
    }

    // A large number is rounded, with all of it below; a small one has room for a remark.
    function headlineCount(name, n, remark) {
        return Number(n) < 1e6 ? [name, exact(n), remark] : [name, short(n), exact(n)];
    }

    function fillHeadline() {
        const cells = Number(figures.packed) + Number(figures.padding);
        const ofCells = (name) => percent(shareOf(figures[name], cells));
        const items = [
            headlineCount('Rows', figures.rows, `of ${counted(packing.seq_len, 'token')}`),
            headlineCount('Documents', figures.documents, counted(figures.segments, 'segment')),
            headlineCount('Tokens', figures.packed, 'in rows'),
            ['Targets', ofCells('targets'), counted(figures.targets, 'token')],
            ['Padding', ofCells('padding'), counted(figures.padding, 'token')],
            ['Attention saved', saved(inspection.attention.saved), 'of causal pairs'],
        ];
        byId('headline').append(...items.map(page.headline));
    }

    // ---- The ledger -------------------------------------------------------------------------

    function sum(names) {
        return names.reduce((total, name) => total + BigInt(figures[name]), 0n);
    }

    function words(name) {
        return name.replaceAll('_', ' ').replace('utf8', 'UTF-8').replace('json', 'JSON')
            .replace('bos', 'BOS');
    }

    function side(title, names) {
        const rows = names.map((name) => [capital(words(name)), exact(figures[name])]);
        const made = table(title, [{ title }, { title: 'Tokens', number: true }], rows);
        made.append(element('tfoot', {}, element('tr', {},
            element('th', { scope: 'row' }, 'Sum'),
            element('td', { class: 'number' }, exact(sum(names))))));
        return card(null, made);
    }

    function otherCounts() {
        const names = [
            'targets', 'masked', 'padding', 'segments', 'longest_segment', 'empty_documents',
            'split_documents',
            'truncated_documents', 'dropped_documents', 'too_short_documents',
            'held_out_documents', 'untrained_documents', 'headless_documents', 'invalid_utf8_documents',
            'bad_missing_text', 'bad_json', 'bad_utf8', 'bad_too_large', 'bad_pattern',
            'separator_collisions',
        ];
        const always = ['targets', 'padding', 'segments', 'longest_segment', 'split_documents'];
        return names.filter((name) => always.includes(name) || Number(figures[name]) > 0)
            .map((name) => [capital(words(name)), exact(figures[name])]);
    }

    // null and false say that something was not asked for.
    function setting(value) {
        if (typeof value === 'number' || typeof value === 'bigint')
            return exact(value);
        return value === null || value === false ? '–' : visibleName(String(value));
    }

    function packingCard() {
        const { fingerprint } = packing.tokenizer;
        const tokenizer = tokenizerName();
        const rows = Object.entries({ ...packing, tokenizer, fingerprint })
            .map(([name, value]) => [capital(words(name)), setting(value)]);
        const heading = element('summary', {}, 'How it was packed');
        return element('details', { class: 'card wide' }, heading, list(rows));
    }

    function fillLedger() {
        byId('ledger-cards').append(
            side('Tokens in', ['text', 'bos', 'separators', 'repeated']),
            side('Tokens out', ['packed', 'truncated', 'dropped', 'too_short', 'held_out',
                ...(packing.loss_mask ? ['untrained'] : [])]),
            card('Counts', list(otherCounts())), packingCard());
    }

    // ---- Histograms: bins are powers of two -------------------------------------------------

    function tick(n) {
        const units = ['', 'Ki', 'Mi', 'Gi'];
        let i = 0;
        for (; n >= 8192 && n % 1024 === 0; i++)
            n /= 1024;
        return `${n}${units[i]}`;
    }

    function range(from, to, noun) {
        if (from === to)
            return `${exact(from)} ${noun}${from === 1 ? '' : 's'}`;
        return `${exact(from)} to ${exact(to)} ${noun}s`;
    }

    function bin(from, to, noun, value, counts, total) {
        return {
            name: range(from, to, noun), tick: tick(from), value: Number(value),
            shown: short(value),
            text: `${counted(value, counts)}, ${percent(shareOf(value, total))}`,
        };
    }

    function lengthPlot() {
        const { lengths } = inspection;
        const quantiles = ['p1', 'p10', 'p50', 'p90', 'p99', 'max'].map((name) =>
            `${name} ${name === 'max' ? about(lengths.max_exact) : ''}${exact(lengths[name])}`);
        return plots.columns({
            id: 'document-lengths', title: 'Document lengths', noun: 'Tokens',
            note: `${about(lengths.exact)}${quantiles.join(' · ')} tokens`,
            empty: 'There are no documents.',
            bars: figures.document_length_histogram.map((value, i) =>
                bin(2 ** i, 2 ** (i + 1) - 1, 'token', value, 'document', figures.documents)),
        });
    }

    function segmentPlot() {
        const mean = shareOf(figures.segments, figures.rows).toFixed(2);
        return plots.columns({
            id: 'segments-per-row', title: 'Segments in a row', noun: 'Segments',
            note: `${mean} in the mean; a document that is cut has several`,
            empty: 'There are no rows.',
            bars: figures.segments_per_row_histogram.map((value, i) =>
                bin(2 ** i, 2 ** (i + 1) - 1, 'segment', value, 'row', figures.rows)),
        });
    }

    function paddingPlot() {
        const padding = inspection.padding_per_row;
        const none = { name: 'No padding', tick: 'none' };
        const bars = padding.histogram.map((value, i) => ({
            ...bin(2 ** (i - 1), 2 ** i - 1, 'token', value, 'row', padding.rows),
            ...(i === 0 ? none : {}),
        }));
        return plots.columns({
            id: 'padding-per-row', title: 'Padding in a row', noun: 'Padding', bars,
            note: padding.exact ? 'Tokens of padding, all rows'
                : `Tokens of padding, from ${counted(padding.rows, 'row')}`,
            empty: 'There are no rows.',
        });
    }

    function fillDocuments() {
        const how = {
            scan: `Counted again from all ${counted(reading.rows, 'row')}: they agree with ` +
                `the ${inspection.of === 'shard' ? 'metadata' : 'manifest'}.`,
            all: `Lengths, tiles and tokens are those of all ${counted(reading.rows, 'row')}.`,
            sample: `Marked “about”: lengths from a histogram, the rest from ` +
                `${counted(reading.rows, 'row')} in ${counted(reading.shards, 'shard')}; ` +
                '--scan counts all.',
        };
        byId('reading').textContent = how[reading.how];
        byId('document-plots').append(plotCard(lengthPlot(), 'wide'), plotCard(segmentPlot()),
            plotCard(paddingPlot()));
    }

    // ---- Attention --------------------------------------------------------------------------

    function savedWords(share) {
        return Number(share) < 0 ? `${percent(-share)} more` : `${percent(share)} saved`;
    }

    function attentionBar(name, done, causal, isExact, share) {
        return {
            name, tick: name, value: shareOf(done, causal), full: 1, shown: savedWords(share),
            text: `${about(isExact)}${exact(done)} of ${exact(causal)}, ${savedWords(share)}`,
        };
    }

    function fillAttention() {
        const { attention } = inspection;
        const tiles = attention.tiles.map((tile) => attentionBar(`Tiles of ${tile.size} × ` +
            `${tile.size}`, tile.visited, tile.causal, tile.exact, tile.saved));
        const pairs = attentionBar('Pairs of tokens', attention.pairs, attention.causal_pairs,
            true, attention.saved);
        byId('attention-plots').append(plotCard(plots.lines({
            id: 'attention', title: 'Work that is left', noun: 'Unit',
            bars: Number(figures.rows) > 0 ? [pairs, ...tiles] : [],
            empty: 'There are no rows.',
        }), 'wide'));
    }

    // ---- Sources and tokens -----------------------------------------------------------------

    function cutName(text, most) {
        const characters = [...text];
        return characters.length <= most ? text
            : `…${characters.slice(characters.length - most + 1).join('')}`;
    }

    // Of a source in a dataset with loss masks. The first token of a segment is neither.
    function trainedWords({ targets, masked }) {
        const all = Number(targets) + Number(masked);
        return !packing.loss_mask ? [] : [
            `${counted(targets, 'target')} (${percent(shareOf(targets, all))})`,
            `${exact(masked)} masked (${percent(shareOf(masked, all))})`,
        ];
    }

    function sourcePlot() {
        const listed = inspection.sources;
        const left = totals.sources - listed.length;
        return plots.lines({
            id: 'sources', title: 'Sources', noun: 'Source',
            note: left > 0 ? `The first ${listed.length} of ${exact(totals.sources)} sources`
                : 'Shares of the packed tokens',
            empty: 'A shard alone does not know the sources; the manifest does.',
            bars: listed.map((source) => ({
                name: visibleName(source.name), tick: cutName(visibleName(source.name), 28),
                value: Number(source.share), full: 1, shown: percent(source.share),
                text: [percent(source.share), counted(source.figures.packed, 'token'),
                    ...trainedWords(source.figures),
                    counted(source.figures.documents, 'document'),
                    counted(source.inputs, 'input')].join(', '),
            })),
        });
    }

    function tokenName(token) {
        if (token.text === null)
            return token.id === packing.separator ? `⟨${token.id}⟩ separator` : `⟨${token.id}⟩`;
        return `“${visible(token.text).replaceAll('\n', '↵').replaceAll('\t', '⇥')}”`;
    }

    function tokenPlot() {
        const { tokens } = inspection;
        return plots.lines({
            id: 'frequent-tokens', title: 'Most frequent tokens', noun: 'Token',
            note: tokens.exact ? `Of ${counted(tokens.counted, 'token')}`
                : `About, from ${counted(tokens.counted, 'token')}`,
            empty: 'No tokens were counted.',
            bars: tokens.frequent.map((token) => ({
                name: `${tokenName(token)}, id ${token.id}`,
                tick: cutName(tokenName(token), 28),
                value: Number(token.count), shown: percent(token.share),
                text: `${exact(token.count)}, ${percent(token.share)}`,
            })),
        });
    }

    // Those that were recognised in text, with how they are written.
    function addedPlot() {
        const { added } = inspection.tokens;
        return plots.lines({
            id: 'added-tokens', title: 'Added tokens in the text', noun: 'Token',
            note: 'Recognised in documents, not added by packing',
            empty: 'None were recognised.',
            bars: added.map((token) => ({
                name: `${tokenName(token)}, id ${token.id}`,
                tick: cutName(tokenName(token), 28),
                value: Number(token.count), shown: exact(token.count), text: exact(token.count),
            })),
        });
    }

    // ---- Repeated documents -----------------------------------------------------------------

    function repeatedTable(found) {
        const rows = found.most_repeated.map((document) => [
            `${document.shard}:${document.row}`, exact(document.count), exact(document.tokens),
        ]);
        return table('Documents that are repeated most', [
            { title: 'First in row' }, { title: 'Times', number: true },
            { title: 'Tokens', number: true },
        ], rows);
    }

    function fillDuplicates() {
        const found = inspection.duplicates;
        if (!found)
            return;
        byId('duplicates').hidden = false;
        byId('duplicates-note').textContent = found.exact
            ? 'Documents are the same if all their tokens are.'
            : `Counted by a sketch: ${percent(found.error)} more or less.`;
        const pairs = [
            ['Documents', exact(found.documents)],
            ['Distinct', about(found.exact) + exact(found.distinct)],
            ['Repeats', `${about(found.exact)}${exact(found.repeated)} · ` +
                percent(shareOf(found.repeated, found.documents))],
        ];
        if (found.repeated_tokens !== null)
            pairs.push(['Tokens of repeats', `${exact(found.repeated_tokens)} · ` +
                percent(shareOf(found.repeated_tokens, found.tokens))]);
        byId('duplicates-cards').append(card(null, list(pairs)));
        if (found.most_repeated.length > 0)
            byId('duplicates-cards').append(card(null, repeatedTable(found)));
    }

    // ---- Shards -----------------------------------------------------------------------------

    function shardBar(group) {
        const last = group.first + group.shards - 1;
        const mean = shareOf(group.rows, group.shards);
        const single = group.shards === 1;
        return {
            name: single ? `Shard ${exact(group.first)}`
                : `Shards ${exact(group.first)} to ${exact(last)}`,
            tick: exact(group.first), value: mean, shown: short(mean),
            text: counted(group.rows, 'row') +
                (single ? '' : `, ${mean.toFixed(1)} in the mean`),
        };
    }

    function shardPlot() {
        return plots.columns({
            id: 'rows-over-shards', title: 'Rows over shards', noun: 'Shards',
            note: 'Shards in their order, numbered from 0',
            empty: 'There are no shards.',
            bars: data.shard_groups.map(shardBar),
        });
    }

    function shardTable() {
        const rows = inspection.shards.map((shard) => [
            element('bdi', { class: 'mono' }, visibleName(shard.file)),
            ...[shard.rows, shard.documents, shard.tokens, shard.padding, shard.bytes].map(exact),
            element('span', { class: 'mono' }, shard.checksum ?? 'in the manifest'),
        ]);
        return table('Shards', [
            { title: 'File' }, ...['Rows', 'Documents', 'Tokens', 'Padding', 'Bytes']
                .map((title) => ({ title, number: true })), { title: 'Checksum (XXH3-128)' },
        ], rows);
    }

    function fillShards() {
        const n = inspection.shards.length;
        byId('shards-note').textContent = n < totals.shards
            ? `The table has the first ${exact(n)} of ${counted(totals.shards, 'shard')}; ` +
                'inspect --json lists all.'
            : 'Checksums are the manifest’s; bindery verify compares them with the files.';
        byId('shard-plots').append(plotCard(shardPlot(), 'wide'));
        byId('shard-table').append(shardTable());
    }

    fillHeader();
    fillHeadline();
    fillLedger();
    fillDocuments();
    fillAttention();
    byId('content-plots').append(plotCard(sourcePlot()), plotCard(tokenPlot()));
    if (inspection.tokens.added.length > 0)
        byId('content-plots').append(plotCard(addedPlot()));
    fillDuplicates();
    fillShards();
})();
