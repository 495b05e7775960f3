'use strict';
// inspection_page_rows.js - the rows of an inspection's page: a list of strips drawn to scale;
// the chosen one with its documents, their text, and what is known of each token.

(() => {
    const { data, exact, counted, visible, visibleName, element, svg } = page;
    const { sample } = data;
    const { packing } = data.inspection;
    const N_COLORS = 6;
    const LABELLED_SHARE = 0.04; // of a row; narrower segments have no room for a number

    const list = document.getElementById('row-list');
    const detail = document.getElementById('row-detail');

    // ---- Words ------------------------------------------------------------------------------

    function sourceOf(segment) {
        const input = sample.inputs[segment.input];
        return input ? visibleName(input.source) : null;
    }

    function place(segment) {
        const input = sample.inputs[segment.input];
        return input ? `${visibleName(input.name)}, ${input.unit} ${exact(segment.position)}`
            : `input ${segment.input}, position ${exact(segment.position)}`;
    }

    function piece(segment) {
        const n = segment.to - segment.from;
        if (n === segment.length)
            return `whole document of ${counted(n, 'token')}`;
        const context = segment.offset > 0 ? ', the first one repeated as context' : '';
        return `tokens ${exact(segment.offset)} to ${exact(segment.offset + n - 1)} of ` +
            `${exact(segment.length)}${context}`;
    }

    function summary(row) {
        const padding = packing.seq_len - row.used;
        return `${counted(row.n_segments, 'segment')}, ${counted(row.used, 'token')}` +
            (padding > 0 ? `, ${exact(padding)} of padding` : ', no padding');
    }

    function color(i) {
        return `segment c${i % N_COLORS}`;
    }

    // ---- Strips -----------------------------------------------------------------------------

    function span(from, to, className, more = {}) {
        return svg('rect', {
            class: className, x: `${100 * from / packing.seq_len}%`,
            width: `${100 * (to - from) / packing.seq_len}%`, y: 0, height: '100%', ...more,
        });
    }

    // What no segment of the page covers: those that are not listed, and the padding.
    function rest(row) {
        const listed = row.segments.at(-1)?.to ?? 0;
        const parts = [];
        if (listed < row.used)
            parts.push(span(listed, row.used, 'unlisted'));
        if (row.used < packing.seq_len)
            parts.push(span(row.used, packing.seq_len, 'padding', { fill: 'url(#hatch)' }));
        return parts;
    }

    function strip(row) {
        return svg('svg', { class: 'strip', width: '100%', 'aria-hidden': 'true' },
            ...row.segments.map((segment, i) => span(segment.from, segment.to, color(i))),
            ...rest(row));
    }

    function segmentLink(segment, i) {
        const words = `Segment ${i + 1}: ${place(segment)}, ${piece(segment)}`;
        const share = (segment.to - segment.from) / packing.seq_len;
        const middle = 50 * (segment.from + segment.to) / packing.seq_len;
        const number = svg('text', { x: `${middle}%`, y: '50%', 'aria-hidden': 'true' },
            share < LABELLED_SHARE ? '' : String(i + 1));
        const link = svg('a', { href: `#segment-${i + 1}`, 'aria-label': words },
            svg('title', {}, words), span(segment.from, segment.to, color(i)), number);
        return link;
    }

    function largeStrip(row, say) {
        const links = row.segments.map(segmentLink);
        links.forEach((link, i) => {
            for (const event of ['pointerenter', 'focus'])
                link.addEventListener(event, () => say(link.getAttribute('aria-label')));
            link.addEventListener('click', (event) => {
                event.preventDefault(); // the address of the page stays as it is
                document.getElementById(`segment-${i + 1}`).scrollIntoView();
            });
        });
        if (links.length > 0)
            page.rove(links);
        return svg('svg', {
            class: 'strip large', width: '100%', role: 'group',
            'aria-label': `Row ${exact(row.row)} drawn to scale: ${summary(row)}`,
        }, ...links, ...rest(row));
    }

    // ---- Tokens -----------------------------------------------------------------------------

    const encoder = new TextEncoder();

    function bytesOf(id) {
        const entry = sample.vocabulary[id];
        if (entry === undefined)
            return null;
        return typeof entry === 'string' ? encoder.encode(entry) : new Uint8Array(entry);
    }

    // The tokens of a segment as pieces of text: { text, first, last, isId }. A character may
    // be several tokens, which then are one piece; a token without text is shown by its id.
    function piecesOf(ids) {
        const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
        const pieces = [];
        let first = 0;
        const put = (text, last, isId) => {
            if (text !== '' || isId)
                pieces.push({ text, first, last, isId });
            first = text !== '' || isId ? last + 1 : first;
        };
        ids.forEach((id, t) => {
            const bytes = bytesOf(id);
            if (bytes) {
                put(decoder.decode(bytes, { stream: true }), t, false);
            } else {
                put(decoder.decode(), t - 1, false);
                put(`⟨${id}⟩`, t, true);
            }
        });
        put(decoder.decode(), ids.length - 1, false);
        return pieces;
    }

    function idWords(id) {
        const roles = { separator: packing.separator, BOS: packing.bos };
        const role = Object.keys(roles).find((name) => roles[name] === id);
        return role ? `id ${id}, ${role}` : `id ${id}`;
    }

    // Which tokens of a segment are trained, or null if the dataset has no loss masks.
    function trainedOf(segment) {
        if (!packing.loss_mask)
            return null;
        const trained = segment.ids.map(() => false);
        for (const [begin, end] of segment.trained)
            trained.fill(true, begin, end);
        return trained;
    }

    function isMasked(trained, piece) {
        return trained !== null && !trained.slice(piece.first, piece.last + 1).includes(true);
    }

    function targetWords(trained, piece) {
        if (piece.first === 0)
            return 'no target: the first of its segment';
        return isMasked(trained, piece) ? 'no target: masked' : 'a target';
    }

    // Everything that is known of the tokens of a piece.
    function describe(segment, i, piece, trained) {
        const { first, last } = piece;
        const range = (from) => first === last ? exact(from + first)
            : `${exact(from + first)} to ${exact(from + last)}`;
        const many = first === last ? '' : 's';
        const source = sourceOf(segment);
        return [
            `Token${many} ${range(segment.from)} of the row`,
            segment.ids.slice(first, last + 1).map(idWords).join(', '),
            `position ${range(0)} in segment ${i + 1}`,
            `token ${range(segment.offset)} of its document`,
            source === null ? null : `source ${source}`,
            targetWords(trained, piece),
        ].filter((part) => part !== null).join(' · ');
    }

    function tokenClass(piece, trained) {
        return ['t', piece.isId ? 'id' : '', piece.text.includes('\n') ? 'feed' : '',
            isMasked(trained, piece) ? 'masked' : '']
            .filter((name) => name).join(' ');
    }

    // The text, of which pointer and arrow keys choose a piece.
    function textOf(segment, i, pieces, say) {
        const trained = trainedOf(segment);
        const spans = pieces.map((piece) =>
            element('span', { class: tokenClass(piece, trained) }, visible(piece.text)));
        const text = element('div', {
            class: 'text', role: 'group', tabindex: '0', dir: 'auto',
            'aria-label': `Text of segment ${i + 1}; arrow keys move from token to token`,
        }, ...spans);
        let at = 0;
        const choose = (next) => {
            spans[at].classList.remove('chosen');
            at = next;
            spans[at].classList.add('chosen');
            say(describe(segment, i, pieces[at], trained));
        };
        text.addEventListener('pointerover', (event) => {
            const next = spans.indexOf(event.target);
            if (next >= 0)
                choose(next);
        });
        text.addEventListener('keydown', (event) => {
            const next = page.placeAfter(event.key, at, spans.length);
            if (next !== at || event.key.startsWith('Arrow')) {
                event.preventDefault();
                choose(next);
            }
        });
        text.addEventListener('focus', () => choose(at));
        return text;
    }

    // ---- One row ----------------------------------------------------------------------------

    function segmentBlock(segment, i, say) {
        const left = segment.to - segment.from - segment.ids.length;
        const source = sourceOf(segment);
        const targets = packing.loss_mask ? ` · ${counted(segment.targets, 'target')}, ` +
            `${exact(segment.to - segment.from - 1 - segment.targets)} masked` : '';
        const block = element('article', { class: color(i), id: `segment-${i + 1}` },
            element('h4', {}, `${i + 1} · `, element('bdi', {}, place(segment))),
            element('p', { class: 'note' },
                `Tokens ${exact(segment.from)} to ${exact(segment.to - 1)} of the row · ` +
                `${piece(segment)}${targets}${source === null ? '' : ` · source ${source}`}`));
        const pieces = piecesOf(segment.ids);
        if (pieces.length > 0)
            block.append(textOf(segment, i, pieces, say));
        if (left > 0)
            block.append(element('p', { class: 'note cut' },
                `… and ${counted(left, 'token')} more, not in this page`));
        return block;
    }

    function switchOf(blocks) {
        const box = element('input', { type: 'checkbox', id: 'edges' });
        box.addEventListener('change', () => blocks.classList.toggle('edges', box.checked));
        return element('label', { class: 'note', for: 'edges' }, box, ' Show where tokens end');
    }

    function show(row) {
        const status = element('p', { class: 'status', role: 'status' },
            'Point at a token, or go to a text and use the arrow keys.');
        const say = (words) => { status.textContent = words; };
        const blocks = element('div', { class: packing.loss_mask ? 'documents masks' : 'documents' },
            ...row.segments.map((segment, i) => segmentBlock(segment, i, say)));
        const left = row.n_segments - row.segments.length;
        if (left > 0)
            blocks.append(element('p', { class: 'note' },
                `… and ${counted(left, 'segment')} more, not in this page`));
        detail.replaceChildren(
            element('h3', {}, `Row ${exact(row.row)}`),
            element('p', { class: 'note' }, `Row ${exact(row.row_in_shard)} of `,
                element('bdi', {}, visibleName(row.shard)), ` · ${summary(row)}`),
            largeStrip(row, say), status, switchOf(blocks), blocks);
    }

    // ---- The list ---------------------------------------------------------------------------

    function rowButton(row) {
        const name = `Row ${exact(row.row)}`;
        const label = `${name}: ${summary(row)}`;
        return element('button', { type: 'button', 'aria-label': label, title: label },
            element('span', {}, name), strip(row));
    }

    function choose(buttons, chosen) {
        buttons.forEach((button, i) => {
            if (i === chosen)
                button.setAttribute('aria-current', 'true');
            else
                button.removeAttribute('aria-current');
        });
        show(sample.rows[chosen]);
    }

    function fillNote() {
        const rows = data.inspection.figures.rows;
        const n = sample.rows.length;
        const which = n === Number(rows) ? `All ${counted(rows, 'row')}`
            : `${counted(n, 'row')} of ${exact(rows)}, spread over the dataset`;
        const notes = [`${which}, drawn to scale.`,
            'Colours only tell neighbours apart; hatching is padding.'];
        if (packing.loss_mask)
            notes.push('Dimmed text is masked: it is read, but not trained.');
        if (sample.cut)
            notes.push('Some tokens are shown by their ids: their texts had no room.');
        document.getElementById('rows-note').textContent = notes.join(' ');
    }

    // Paper and pointers share this pattern; it takes no room.
    function hatch() {
        const d = 'M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2';
        const lines = svg('path', { d, class: 'hatching' });
        return svg('svg', { width: 0, height: 0, 'aria-hidden': 'true', class: 'patterns' },
            svg('defs', {}, svg('pattern', {
                id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse',
            }, lines)));
    }

    function fillRows() {
        if (sample.rows.length === 0) {
            document.getElementById('rows-note').textContent = 'There are no rows.';
            document.querySelector('.browser').remove();
            return;
        }
        fillNote();
        const buttons = sample.rows.map(rowButton);
        list.after(hatch());
        list.append(...buttons.map((button) => element('li', {}, button)));
        buttons.forEach((button, i) =>
            button.addEventListener('click', () => choose(buttons, i)));
        page.rove(buttons);
        choose(buttons, 0);
    }
    fillRows();
})();
