'use strict';
// page.js - the functions that every page needs: its data, numbers for people, elements, tables,
// moving by arrow keys. Text from the data becomes text nodes or attributes alone, never HTML.

const page = (() => {
    // An integer that a double cannot hold stays exact where the browser shows us its digits.
    function revive(key, value, context) {
        const isLarge = typeof value === 'number' && !Number.isSafeInteger(value);
        const digits = isLarge ? context?.source ?? '' : '';
        return /^-?\d+$/.test(digits) ? BigInt(digits) : value;
    }

    const data = JSON.parse(document.getElementById('data').textContent, revive);

    // ---- Numbers: common/cli/human.h has the same for the terminal -----------------------------

    function exact(n) {
        return n.toLocaleString('en-US', { maximumFractionDigits: 0 });
    }

    // Three significant digits and the largest step that leaves at least 1.
    function short(n) {
        const suffixes = ['', ' k', ' M', ' G', ' T', ' P', ' E'];
        let value = Number(n);
        let i = 0;
        for (; value >= 999.5 && i + 1 < suffixes.length; i++)
            value /= 1000;
        const decimals = i === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
        return value.toFixed(decimals) + suffixes[i];
    }

    function percent(share) {
        return `${(100 * Number(share)).toFixed(1)} %`;
    }

    // "1 row", "2 rows"
    function counted(n, word) {
        return `${exact(n)} ${word}${Number(n) === 1 ? '' : 's'}`;
    }

    function capital(text) {
        return text.charAt(0).toUpperCase() + text.slice(1);
    }

    // ---- Text that may try to deceive -------------------------------------------------------

    // Control characters, those that turn the direction of writing, and separators of lines.
    const invisible = new RegExp(
        '[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e' +
        '\\u2060-\\u206f\\ufeff]', 'gu');

    function nameCharacter(character) {
        const code = character.codePointAt(0);
        if (code < 0x20)
            return String.fromCodePoint(0x2400 + code);
        return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
    }

    // The text with its invisible characters named; line feeds and tabs stay.
    function visible(text) {
        return text.replace(invisible, nameCharacter);
    }

    // The same for names, which are one line.
    function visibleName(text) {
        return visible(text).replace(/[\t\n]/g, nameCharacter);
    }

    // ---- Elements ---------------------------------------------------------------------------

    function fill(node, attributes, children) {
        for (const [name, value] of Object.entries(attributes))
            if (value !== null)
                node.setAttribute(name, value);
        node.append(...children.filter((child) => child !== null));
        return node;
    }

    function element(tag, attributes = {}, ...children) {
        return fill(document.createElement(tag), attributes, children);
    }

    function svg(tag, attributes = {}, ...children) {
        const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
        return fill(made, attributes, children);
    }

    function byId(id) {
        return document.getElementById(id);
    }

    function card(title, ...content) {
        return element('div', { class: 'card' }, title ? element('h3', {}, title) : null,
            ...content);
    }

    // A figure for the list #headline: its name, itself, and a remark.
    function headline([name, large, small]) {
        return element('div', { class: 'card' }, element('dt', {}, name),
            element('dd', {}, element('strong', {}, large),
                element('span', { class: 'note' }, small)));
    }

    // A table with numbers on the right. columns: { title, number }; cells: text or nodes.
    function table(caption, columns, rows) {
        const cell = (tag, content, column, more) =>
            element(tag, { class: column.number ? 'number' : null, ...more }, content);
        const head = columns.map((column) =>
            cell('th', column.title, column, { scope: 'col' }));
        const body = rows.map((row) => element('tr', {}, ...row.map((content, i) =>
            i === 0 ? cell('th', content, columns[0], { scope: 'row' })
                : cell('td', content, columns[i], {}))));
        return element('table', {}, element('caption', {}, caption),
            element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...body));
    }

    // Pairs of a name and its value.
    function list(pairs) {
        return element('dl', {}, ...pairs.map(([name, value]) =>
            element('div', {}, element('dt', {}, name), element('dd', {}, value))));
    }

    // ---- Keys -------------------------------------------------------------------------------

    const steps = {
        ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity,
    };

    // Where a key leads among n places; the place itself for other keys.
    function placeAfter(key, at, n) {
        return Math.min(Math.max(at + (steps[key] ?? 0), 0), n - 1);
    }

    // Makes one stop for the tab key of many elements: arrow keys move between them.
    function rove(items) {
        const stopAt = (chosen) => items.forEach((item) =>
            item.setAttribute('tabindex', item === chosen ? '0' : '-1'));
        items.forEach((item, i) => {
            item.addEventListener('focus', () => stopAt(item));
            item.addEventListener('keydown', (event) => {
                if (event.key in steps) {
                    event.preventDefault();
                    items[placeAfter(event.key, i, items.length)].focus();
                }
            });
        });
        stopAt(items[0]);
    }

    // ---- Paper: everything that is folded is unfolded there ---------------------------------

    function unfoldForPaper() {
        let folded = [];
        window.addEventListener('beforeprint', () => {
            folded = [...document.querySelectorAll('details:not([open])')];
            folded.forEach((details) => { details.open = true; });
        });
        window.addEventListener('afterprint', () => {
            folded.forEach((details) => { details.open = false; });
        });
    }
    unfoldForPaper();

    return {
        data, exact, short, percent, counted, capital, visible, visibleName, element,
        svg, byId, card, headline, table, list, placeAfter, rove,
    };
})();
