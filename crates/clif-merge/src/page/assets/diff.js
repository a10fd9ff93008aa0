"use strict";
// Two listings line by line. Lines are aligned without the numbers of values, blocks and so on; then the numbers are
// compared as a renaming: where v3 corresponds to v7 once, it must do so everywhere. Comments, source locations and the
// function's own name do not count.
const Diff = (() => {
    const TOKEN = /;.*|@[0-9a-f]+|%[\w.$]+|"[^"]*"|u\d+:\d+|[A-Za-z_][\w.]*|-?[\d.]+[\w.+-]*|\s+|./g;
    const ENTITY = /^(v|block|inst|region|sig|ss|dss|dt|gv|fn|const|mt)(\d+)$/;
    // Beyond this number of differing lines, the rest is not aligned.
    const MOST_EDITS = 1500;

    // The tokens of a line. `key` is what must be equal; of what does not count, it is empty.
    function tokens(line, exact) {
        let afterFunction = false;
        return (line.match(TOKEN) || []).map((text) => {
            const entity = exact ? null : ENTITY.exec(text);
            const isBlank = /^\s/.test(text);
            const counts = exact ? !isBlank : !isBlank && text[0] !== ";" && text[0] !== "@" && !afterFunction;
            if (!isBlank) {
                afterFunction = !exact && text === "function";
            }
            return { text, key: !counts ? "" : entity ? entity[1] + "#" : text, entity: entity !== null };
        });
    }

    const key = (line) => line.filter((token) => token.key).map((token) => token.key).join(" ");

    // Which elements of two arrays of strings are paired, in order: Myers' greedy algorithm.
    function pairs(a, b) {
        let start = 0;
        while (start < a.length && start < b.length && a[start] === b[start]) {
            start += 1;
        }
        let [aEnd, bEnd] = [a.length, b.length];
        while (aEnd > start && bEnd > start && a[aEnd - 1] === b[bEnd - 1]) {
            aEnd -= 1;
            bEnd -= 1;
        }
        const result = [];
        for (let at = 0; at < start; at += 1) {
            result.push([at, at]);
        }
        const [n, m] = [aEnd - start, bEnd - start];
        const most = Math.min(n + m, MOST_EDITS);
        const frontier = new Int32Array(2 * most + 3);
        const history = [];
        let found = -1;
        for (let edits = 0; edits <= most && found < 0 && n > 0 && m > 0; edits += 1) {
            history.push(frontier.slice(most + 1 - edits - 1, most + 1 + edits + 2));
            for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
                const at = most + 1 + diagonal;
                const down = diagonal === -edits || (diagonal !== edits && frontier[at - 1] < frontier[at + 1]);
                let x = down ? frontier[at + 1] : frontier[at - 1] + 1;
                while (x < n && x - diagonal < m && a[start + x] === b[start + x - diagonal]) {
                    x += 1;
                }
                frontier[at] = x;
                if (x >= n && x - diagonal >= m) {
                    found = edits;
                    break;
                }
            }
        }
        const middle = [];
        if (found >= 0) {
            let [x, y] = [n, m];
            for (let edits = found; edits >= 0; edits -= 1) {
                const before = history[edits];
                const value = (diagonal) => before[diagonal + edits + 1];
                const diagonal = x - y;
                const down =
                    diagonal === -edits || (diagonal !== edits && value(diagonal - 1) < value(diagonal + 1));
                const previous = down ? diagonal + 1 : diagonal - 1;
                const [px, py] = edits === 0 ? [0, 0] : [value(previous), value(previous) - previous];
                while (x > px && y > py) {
                    x -= 1;
                    y -= 1;
                    middle.push([start + x, start + y]);
                }
                [x, y] = [px, py];
            }
        }
        result.push(...middle.reverse());
        for (let at = 0; aEnd + at < a.length; at += 1) {
            result.push([aEnd + at, bEnd + at]);
        }
        return result;
    }

    // Marks the tokens of two lines that differ, and learns which numbers stand for each other.
    function compareTokens(left, right, renaming) {
        const counted = [left, right].map((line) => line.filter((token) => token.key));
        const [a, b] = counted;
        const paired = pairs(a.map((token) => token.key), b.map((token) => token.key));
        counted.flat().forEach((token) => (token.differs = true));
        for (const [x, y] of paired) {
            let same = true;
            if (a[x].entity) {
                const [there, back] = [renaming.there.get(a[x].text), renaming.back.get(b[y].text)];
                if (there === undefined && back === undefined) {
                    renaming.there.set(a[x].text, b[y].text);
                    renaming.back.set(b[y].text, a[x].text);
                } else {
                    same = there === b[y].text && back === a[x].text;
                }
            }
            a[x].differs = b[y].differs = !same;
        }
        return counted.flat().some((token) => token.differs);
    }

    // Rows of two texts side by side: the numbers of the lines from 0, or null, their tokens, and how they compare.
    function rows(left, right, exact) {
        const [a, b] = [left, right].map((text) => text.split("\n").map((line) => tokens(line, exact)));
        const paired = pairs(a.map(key), b.map(key));
        paired.push([a.length, b.length]);
        const renaming = { there: new Map(), back: new Map() };
        const result = [];
        let [x, y] = [0, 0];
        const both = () => {
            const differs = compareTokens(a[x], b[y], renaming);
            result.push({ kind: differs ? "changed" : "same", left: x, right: y, a: a[x], b: b[y] });
            x += 1;
            y += 1;
        };
        for (const [toX, toY] of paired) {
            while (x < toX && y < toY) {
                both();
            }
            for (; x < toX; x += 1) {
                result.push({ kind: "removed", left: x, right: null, a: a[x], b: null });
            }
            for (; y < toY; y += 1) {
                result.push({ kind: "added", left: null, right: y, a: null, b: b[y] });
            }
            if (x < a.length && y < b.length) {
                both();
            }
        }
        return result;
    }

    return { rows };
})();
