"use strict";
// The tables of the page, and the dialog that shows a class or a near miss. All texts are set as text, never as markup.
(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const F = data.functions;
    const C = data.classes;
    const M = data.misses;
    const RULES = new Map(data.rules);
    // How many rows are added to a table at a time.
    const ROWS = 200;
    // How many lines of a listing are shown at first.
    const LINES = 2000;
    // How many functions of other classes are listed with the members of a class.
    const MOST_OTHERS = 20;

    const byId = (id) => document.getElementById(id);

    // An element with attributes and children; strings become text.
    function element(name, attributes, ...children) {
        const made = document.createElement(name);
        for (const [key, value] of Object.entries(attributes || {})) {
            if (value === true) {
                made.setAttribute(key, "");
            } else if (value !== false && value !== null && value !== undefined) {
                made.setAttribute(key, value);
            }
        }
        made.append(...children.filter((child) => child !== null));
        return made;
    }

    const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
    const plural = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

    const named = (at) => [
        element("span", { class: "name" }, F.name[at]),
        F.source[at] === null ? null : " ",
        F.source[at] === null ? null : element("span", { class: "source" }, F.source[at]),
        F.is_new[at] ? " (new)" : null,
    ];
    const inWords = (at) => (F.source[at] === null ? F.name[at] : `${F.name[at]} (${F.source[at]})`);

    const members = new Map();
    F.class.forEach((number, at) => {
        if (!members.has(number)) {
            members.set(number, []);
        }
        members.get(number).push(at);
    });

    const haystacks = F.name.map((name, at) => {
        const resembles = F.resembles[at];
        const words = [name, F.source[at] || "", F.rule[at], F.disposition[at], (resembles && resembles.rule) || ""];
        return words.join("\n").toLowerCase();
    });

    // The first function among some that a search finds.
    const firstFound = (functions, wanted) => functions.find((at) => haystacks[at].includes(wanted));

    // ---- Tables ----

    // A table: rows are numbers from 0, `columns[i](row)` sorts, `cells(row)` are the cells behind the first,
    // `head(row, wanted)` is what the first has, `finds(row, wanted)` searches.
    function table({ id, section, count, columns, head, cells, finds, sort }) {
        const body = byId(id).tBodies[0];
        const headings = [...byId(id).tHead.rows[0].cells];
        const more = element("button", { type: "button", class: "more", hidden: true });
        byId(section).append(more);
        const all = Array.from({ length: count }, (_, row) => row);
        let [shown, limit, wanted] = [all, ROWS, ""];
        let { column, descending } = sort;

        function append(from, to) {
            const rows = shown.slice(from, to).map((row) =>
                element(
                    "tr",
                    null,
                    element("th", { scope: "row" }, ...head(row, wanted)),
                    ...cells(row).map((cell) => element("td", null, cell)),
                ),
            );
            body.append(...rows);
            const left = shown.length - Math.min(to, shown.length);
            more.hidden = left === 0;
            more.textContent = `Show ${grouped(Math.min(left, ROWS))} more of ${grouped(left)}`;
        }

        function draw() {
            limit = ROWS;
            body.replaceChildren();
            append(0, limit);
            headings.forEach((heading, at) => {
                const sorted = at === column ? (descending ? "descending" : "ascending") : "none";
                heading.setAttribute("aria-sort", sorted);
            });
        }

        function order() {
            if (column === null) {
                return;
            }
            const value = columns[column];
            const sign = descending ? -1 : 1;
            const keys = new Map(all.map((row) => [row, value(row)]));
            const compare = (a, b) => {
                const [x, y] = [keys.get(a), keys.get(b)];
                return x < y ? -sign : x > y ? sign : a - b;
            };
            all.sort(compare);
        }

        function search(text) {
            wanted = text;
            shown = text === "" ? all : all.filter((row) => finds(row, text));
            draw();
            byId(section).hidden = count === 0;
            return shown.length;
        }

        more.addEventListener("click", () => {
            const first = body.rows.length;
            append(limit, limit + ROWS);
            limit += ROWS;
            const link = body.rows[first] && body.rows[first].querySelector("a");
            if (link) {
                link.focus();
            }
        });
        headings.forEach((heading, at) => {
            const button = element("button", { type: "button" }, heading.textContent);
            heading.replaceChildren(button);
            button.addEventListener("click", () => {
                descending = at === column ? !descending : at > 0;
                column = at;
                order();
                search(wanted);
            });
        });
        // From one row to the next with the arrow keys.
        body.addEventListener("keydown", (event) => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            const row = event.target.closest("tr");
            if (step === undefined || row === null) {
                return;
            }
            const next = step === 1 ? row.nextElementSibling : row.previousElementSibling;
            const link = next && next.querySelector("a");
            if (link) {
                event.preventDefault();
                link.focus();
            }
        });
        order();
        search("");
        return { search };
    }

    const signed = (number) => (number === null ? "?" : (number < 0 ? "-" : "") + grouped(Math.abs(number)));

    // What a row says of a search that finds another function than the one that is named.
    function matches(functions, first, wanted) {
        if (wanted === "" || haystacks[first].includes(wanted)) {
            return null;
        }
        const at = firstFound(functions, wanted);
        return at === undefined ? null : element("span", { class: "matches" }, "has ", ...named(at));
    }

    const ofClass = (row) => members.get(C.number[row]);
    const isNumber = (row, wanted) => wanted === `#${C.number[row]}` || wanted === `class ${C.number[row]}`;
    const tables = [
        table({
            id: "families",
            section: "families-section",
            count: data.families.length,
            columns: [
                (row) => data.families[row].name,
                (row) => data.families[row].functions,
                (row) => data.families[row].merged,
                (row) => data.families[row].before,
                (row) => data.families[row].saved,
            ],
            head: (row) => [data.families[row].name],
            cells: (row) => {
                const { functions, merged, before, saved } = data.families[row];
                return [grouped(functions), grouped(merged), grouped(before), signed(saved)];
            },
            finds: (row, wanted) => data.families[row].name.toLowerCase().includes(wanted),
            sort: { column: 4, descending: true },
        }),
        table({
            id: "misses",
            section: "misses-section",
            count: M.members.length,
            columns: [
                (row) => F.name[M.members[row][0]],
                (row) => M.members[row].length,
                (row) => M.difference[row],
                (row) => M.bytes[row],
                (row) => M.would_save[row],
            ],
            head: (row, wanted) => {
                const first = M.members[row][0];
                return [
                    element("a", { href: `#similar-${row}` }, ...named(first)),
                    matches(M.members[row], first, wanted),
                ];
            },
            cells: (row) => [
                grouped(M.members[row].length),
                M.difference[row],
                grouped(M.bytes[row]),
                signed(M.would_save[row]),
            ],
            finds: (row, wanted) => firstFound(M.members[row], wanted) !== undefined,
            sort: { column: 4, descending: true },
        }),
        table({
            id: "class-table",
            section: "classes-section",
            count: C.number.length,
            columns: [
                (row) => F.source[C.representative[row]] || F.name[C.representative[row]],
                (row) => C.number[row],
                (row) => ofClass(row).length,
                (row) => C.merged[row],
                (row) => C.before[row],
                (row) => C.after[row],
                (row) => C.before[row] - C.after[row],
            ],
            head: (row, wanted) => {
                const first = C.representative[row];
                return [
                    element("a", { href: `#class-${C.number[row]}` }, ...named(first)),
                    matches(ofClass(row), first, wanted),
                ];
            },
            cells: (row) => [
                String(C.number[row]),
                grouped(ofClass(row).length),
                grouped(C.merged[row]),
                grouped(C.before[row]),
                grouped(C.after[row]),
                signed(C.before[row] - C.after[row]),
            ],
            finds: (row, wanted) => isNumber(row, wanted) || firstFound(ofClass(row), wanted) !== undefined,
            sort: { column: 6, descending: true },
        }),
    ];

    const search = byId("search");
    function find() {
        const wanted = search.value.trim().toLowerCase();
        const [families, misses, classes] = tables.map((one) => one.search(wanted));
        const found = [
            plural(families, "family", "families"),
            plural(misses, "near miss", "near misses"),
            plural(classes, "class", "classes"),
        ];
        byId("found").textContent = wanted === "" ? "" : found.join(", ");
    }
    search.addEventListener("input", find);
    search.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && search.value !== "") {
            event.preventDefault();
            search.value = "";
            find();
        }
    });
    byId("search-area").hidden = false;
    document.addEventListener("keydown", (event) => {
        const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
        if (event.key === "/" && !isTyping && !byId("detail").open && !event.ctrlKey && !event.metaKey) {
            event.preventDefault();
            search.focus();
            search.select();
        }
    });

    // ---- Listings ----

    const streams = new Map();
    data.listings.forEach(({ functions, stream }) => {
        let read = null;
        const listings = () => {
            read = read || decompressed(stream);
            return read;
        };
        functions.forEach((at, place) => streams.set(at, async () => (await listings())[place]));
    });

    async function decompressed(text) {
        const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
        return new Response(stream).json();
    }

    async function fetched(at) {
        const answer = await fetch(`function/${at}.json`).catch(() => null);
        return answer !== null && answer.ok ? answer.json() : null;
    }

    // The listings of a function, or null if they are not to be had.
    async function listing(at) {
        if (data.served) {
            return fetched(at);
        }
        const embedded = streams.get(at);
        return embedded === undefined ? null : embedded();
    }

    // What two listings are shown, by the name of the choice: of the left function and of the right one. The last
    // compares the left one with itself.
    const NOTES = { clif: null, before: ", before merging", after: ", after merging" };
    const VIEWS = {
        clif: { title: "CLIF of both", sides: ["clif", "clif"] },
        before: { title: "native code of both before merging", sides: ["before", "before"] },
        after: { title: "native code of both after merging", sides: ["after", "after"] },
        merging: { title: "native code of the left one before and after merging", sides: ["before", "after"] },
    };

    const quoted = (name) => (/^[\w.:]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);

    // ---- The dialog ----

    const detail = byId("detail");

    function explained(rule) {
        return RULES.get(rule) || "";
    }

    // What the table knows of a difference between two functions.
    function knownDifference(a, b) {
        const [ab, ba] = [F.resembles[a], F.resembles[b]];
        if (ab && ab.function === b) {
            return { rule: ab.rule, parameters: ab.parameters, lines: [ab.line, ab.other_line] };
        }
        if (ba && ba.function === a) {
            return { rule: ba.rule, parameters: ba.parameters, lines: [ba.other_line, ba.line] };
        }
        return null;
    }

    const mark = (token) => (token.differs ? element("mark", null, token.text) : token.text);
    // How a row differs: a sign on the left, one on the right, and the same for who listens.
    const SIGNS = {
        same: ["", "", ""],
        changed: ["≠", "≠", "differs: "],
        removed: ["−", "", "only left: "],
        added: ["", "+", "only right: "],
    };

    function diffTable(left, right, exact, isClif) {
        const one = left.at === right.at && isClif;
        const rows = Diff.rows(left.text, right.text, exact);
        const known = one || !isClif ? null : knownDifference(left.at, right.at);
        const first = (side, line, at) =>
            known !== null && known.lines[side] !== null && line !== null && F.line[at] + line === known.lines[side];
        const body = element("tbody");
        const cells = (kind, line, tokens, side) => {
            const sign = SIGNS[kind][side];
            const style = tokens === null || kind === "same" ? "" : ` ${kind}`;
            const isSaid = kind !== "same" && tokens !== null && (side === 0 || kind === "added");
            const words = isSaid ? element("span", { class: "hidden" }, SIGNS[kind][2]) : null;
            return [
                element("td", { class: "number" }, tokens === null ? "" : String(line + 1)),
                element("td", { class: `sign${style}`, "aria-hidden": "true" }, sign),
                element("td", { class: `code${style}` }, words, ...(tokens === null ? [] : tokens.map(mark))),
            ];
        };
        const append = (from, to) =>
            body.append(
                ...rows.slice(from, to).map((row) => {
                    const isFirst = first(0, row.left, left.at) || first(1, row.right, right.at);
                    const title = isFirst ? "the first difference that matters" : null;
                    return element(
                        "tr",
                        { class: isFirst ? `${row.kind} first` : row.kind, title },
                        ...cells(row.kind, row.left, row.a, 0),
                        ...(one ? [] : cells(row.kind, row.right, row.b, 1)),
                    );
                }),
            );
        append(0, LINES);
        const sides = one ? [left] : [left, right];
        const columns = sides.map(() =>
            element(
                "colgroup",
                null,
                element("col", { class: "number" }),
                element("col", { class: "sign" }),
                element("col"),
            ),
        );
        const headings = sides.map(({ at, note }) =>
            element("th", { scope: "col", colspan: "3" }, ...named(at), note),
        );
        const label = one ? "Listing" : "Listings side by side";
        const head = element("thead", null, element("tr", null, ...headings));
        const made = element(
            "div",
            { class: "scroll diff", tabindex: "0", role: "region", "aria-label": label },
            element("table", null, ...columns, head, body),
        );
        const differing = rows.filter((row) => row.kind !== "same").length;
        let more = null;
        if (rows.length > LINES) {
            more = element("button", { type: "button", class: "more" }, `Show all ${grouped(rows.length)} lines`);
            more.addEventListener("click", () => {
                append(LINES, rows.length);
                more.remove();
            });
        }
        return { made, differing, lines: rows.length, more };
    }

    function counted(differing, lines) {
        const verb = differing === 1 ? "differs" : "differ";
        return differing === 0 ? "No line differs" : `${grouped(differing)} of ${plural(lines, "line")} ${verb}`;
    }

    // The sentence above the CLIF of two functions.
    function verdict(a, b, differing, lines) {
        const count = counted(differing, lines);
        const known = knownDifference(a, b);
        if (known !== null && known.rule !== null) {
            const places = plural(known.parameters, "constant or callee", "constants or callees");
            const differ = known.parameters === null ? "" : ` They differ in ${places}.`;
            const rule = `The first difference that matters is of the rule ${known.rule}: ${explained(known.rule)}.`;
            return `${count}.${differ} ${rule}`;
        }
        const replaced = F.replaced_by[b] === a ? b : F.replaced_by[a] === b ? a : null;
        if (replaced !== null && F.arguments[replaced] !== null) {
            const what = `${F.name[F.replaced_by[replaced]]} replaces ${F.name[replaced]}`;
            return `${count}. ${what} with the extra arguments ${F.arguments[replaced]}.`;
        }
        const same = F.class[a] === F.class[b] && F.arguments[a] === F.arguments[b] && !F.is_new[a] && !F.is_new[b];
        if ((same || replaced !== null) && differing > 0) {
            return `${count}. The two are equal: these differences do not matter.`;
        }
        return `${count}.`;
    }

    // What a function resembles, and where the two differ first.
    function difference({ function: at, rule, line, other_line: there }) {
        const what = rule === null ? ": equal" : `, first difference ${rule}`;
        const here = line === null ? "" : ` in line ${line}`;
        return F.name[at] + what + here + (there === null ? "" : ` (there ${there})`);
    }

    function open(title, facts, functions, first) {
        const close = element("button", { type: "button" }, "Close");
        close.addEventListener("click", () => detail.close());
        // What replaces them may be replaced itself, and then is of another class.
        const own = new Set(functions);
        const outside = new Set(own.has(first) ? [] : [first]);
        for (const at of functions) {
            const resembles = F.resembles[at];
            if (resembles !== null && !own.has(resembles.function) && outside.size < MOST_OTHERS) {
                outside.add(resembles.function);
            }
        }
        const others = [...outside];
        const all = [...functions, ...others];
        const chosen = [first, all.find((at) => at !== first) ?? first];

        const panel = element("div", { id: "comparison" });
        const status = element("p", { role: "status", id: "verdict" });
        const exact = element("input", { type: "checkbox", id: "exact" });
        const views = Object.entries(VIEWS).map(([name, { title }]) => element("option", { value: name }, title));
        const view = element("select", { id: "view" }, ...views);
        let turn = 0;
        async function compare() {
            turn += 1;
            const mine = turn;
            const { sides } = VIEWS[view.value];
            const isClif = view.value === "clif";
            const [a, b] = view.value === "merging" ? [chosen[0], chosen[0]] : chosen;
            exact.disabled = !isClif;
            const listings = await Promise.all([listing(a), listing(b)]);
            if (mine !== turn) {
                return;
            }
            const texts = listings.map((one, side) => (one === null ? undefined : one[sides[side]]));
            if (texts.some((text) => text === undefined || text === null)) {
                const names = a === b ? quoted(F.name[a]) : `${quoted(F.name[a])} ${quoted(F.name[b])}`;
                const why = data.served ? "The server does not answer." : "These listings are not on this page.";
                status.replaceChildren(`${why} In a terminal: `, element("code", null, `${data.why} ${names}`));
                panel.replaceChildren();
                return;
            }
            const side = (at, side) => ({ at, text: texts[side], note: NOTES[sides[side]] });
            const isExact = exact.checked || !isClif;
            const { made, differing, lines, more } = diffTable(side(a, 0), side(b, 1), isExact, isClif);
            if (!isClif) {
                status.textContent = `${counted(differing, lines)}.`;
            } else {
                status.textContent = a === b ? `${plural(lines, "line")}.` : verdict(a, b, differing, lines);
            }
            panel.replaceChildren(made, ...(more === null ? [] : [more]));
        }
        exact.addEventListener("change", compare);
        view.addEventListener("change", compare);

        const body = element("tbody");
        const radio = (side, at) => {
            const input = element("input", {
                type: "radio",
                name: side === 0 ? "left" : "right",
                value: String(at),
                "aria-label": `${side === 0 ? "left" : "right"}: ${inWords(at)}`,
            });
            input.checked = chosen[side] === at;
            input.addEventListener("change", () => {
                chosen[side] = at;
                compare();
            });
            return element("td", null, input);
        };
        const row = (at) => {
            const resembles = F.resembles[at];
            const small = (text) => element("small", null, text);
            const place = F.line[at] === null ? null : small(`${data.files[F.file[at]]}:${F.line[at]}`);
            const role = at === first ? "replaces these" : "resembled";
            const other = own.has(at) ? null : small(`of class ${F.class[at]}, ${role}`);
            const to = F.replaced_by[at];
            const what = F.disposition[at] + (to === null ? "" : ` to ${F.name[to]}`);
            const [before, after] = [grouped(F.before[at]), grouped(F.after[at])];
            const rule = [element("code", null, F.rule[at]), small(explained(F.rule[at]))];
            return element(
                "tr",
                null,
                radio(0, at),
                radio(1, at),
                element("th", { scope: "row", class: "words" }, ...named(at), place, other),
                element("td", { class: "words" }, what),
                element("td", { class: "wide" }, ...rule),
                element("td", { class: "words" }, F.arguments[at] === null ? "" : F.arguments[at]),
                element("td", null, before === after ? before : `${before} → ${after}`),
                element("td", { class: "wide" }, resembles === null ? "" : difference(resembles)),
            );
        };
        let shown = 0;
        const more = element("button", { type: "button", class: "more" });
        const grow = () => {
            body.append(...all.slice(shown, shown + ROWS).map(row));
            shown = Math.min(all.length, shown + ROWS);
            more.hidden = shown === all.length;
            const left = all.length - shown;
            more.textContent = `Show ${grouped(Math.min(ROWS, left))} more of ${grouped(left)}`;
        };
        more.addEventListener("click", grow);
        grow();
        const words = ["function", "disposition", "rule", "extra arguments", "resembles"];
        const head = ["left", "right", "function", "disposition", "rule", "extra arguments", "bytes", "resembles"].map(
            (text) => element("th", { scope: "col", class: words.includes(text) ? "words" : null }, text),
        );
        const heading = element("h2", { id: "detail-heading", tabindex: "-1" }, title);
        const table = element("table", { id: "members" }, element("thead", null, element("tr", null, ...head)), body);
        const scrolled = { class: "members", tabindex: "0", role: "region", "aria-label": "Members" };
        const options = [
            data.native ? element("label", null, "Show ", view) : null,
            element("label", null, exact, " Compare the numbers of values, comments and names, too"),
        ];
        detail.replaceChildren(
            element("div", { class: "detail-top" }, heading, close),
            element("p", null, facts),
            element("div", scrolled, table),
            more,
            element("h3", null, all.length > 1 ? "The two that are chosen, side by side" : "Its listing"),
            element("div", { class: "options" }, ...options),
            status,
            panel,
        );
        compare();
        if (!detail.open) {
            detail.showModal();
        }
        detail.scrollTop = 0;
        byId("detail-heading").focus();
    }

    const rowOfClass = new Map(C.number.map((number, row) => [number, row]));
    function follow() {
        const [, kind, number] = /^#(class|similar)-(\d+)$/.exec(location.hash) || [];
        const at = Number(number);
        if (kind === "class" && rowOfClass.has(at)) {
            const row = rowOfClass.get(at);
            const functions = members.get(at);
            const [before, after] = [C.before[row], C.after[row]];
            const sums = `${grouped(before)} bytes before, ${grouped(after)} after: ${signed(before - after)} saved`;
            const facts = `${plural(functions.length, "member")}, ${grouped(C.merged[row])} merged; ${sums}.`;
            open(`Class ${at}: ${inWords(C.representative[row])}`, facts, functions, C.representative[row]);
        } else if (kind === "similar" && at < M.members.length) {
            const functions = M.members[at];
            const differ = `${plural(functions.length, "function")} that differ in ${M.difference[at]}`;
            const facts = `${differ}; of ${grouped(M.bytes[at])} bytes, one body would save ${grouped(M.would_save[at])}.`;
            open(`Near miss: ${inWords(functions[0])}`, facts, functions, functions[0]);
        } else if (detail.open) {
            detail.close();
        }
    }
    window.addEventListener("hashchange", follow);
    detail.addEventListener("close", () => {
        if (/^#(class|similar)-/.test(location.hash)) {
            history.replaceState(null, "", location.pathname + location.search);
        }
    });

    // ---- Light and dark ----

    const theme = byId("theme");
    const isDark = () => {
        const set = document.documentElement.dataset.theme;
        return set === undefined ? matchMedia("(prefers-color-scheme: dark)").matches : set === "dark";
    };
    const name = () => (theme.textContent = isDark() ? "Light" : "Dark");
    theme.hidden = false;
    theme.addEventListener("click", () => {
        document.documentElement.dataset.theme = isDark() ? "light" : "dark";
        name();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    name();

    follow();
    // Tests wait for it.
    document.documentElement.dataset.ready = "";
})();
