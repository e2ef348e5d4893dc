// Zooming, searching and the keyboard. Without this script the graph is a
// picture whose boxes have titles.
"use strict";
(() => {
	const ROW = 16, PAD = 3, USUAL = 64; // as in svg.go, and as label's expressions
	const QUALIFIER = /^(?:[^<>(){}\[\].: ]|<[^<>]*>|\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\])+(?:::|\.)/;
	const APPENDED = /^(?:isra|part|constprop|cold|lto_priv|llvm|func\d|\d)/;
	const svg = document.currentScript.ownerSVGElement;
	const alone = svg === document.documentElement;
	const make = (name, attributes, parent, space = "http://www.w3.org/2000/svg") => {
		const e = document.createElementNS(space, name);
		for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
		return parent.appendChild(e);
	};

	// The boxes, in preorder: those above frames[i] end before frames[i].end.
	const frames = Array.from(svg.querySelectorAll("#frames > g"), (g, index) => {
		const rect = g.querySelector("rect"), tip = g.querySelector("title"), title = tip.textContent;
		const name = title.slice(0, title.lastIndexOf(" (")); // and its object in a second line
		return {
			g, rect, tip, title, name, index, end: index + 1, text: g.querySelector("text"),
			short: g.dataset.short ?? name.split("\n")[0], y: +rect.getAttribute("y"),
			x: parseFloat(rect.getAttribute("x")), width: parseFloat(rect.getAttribute("width")),
		};
	});
	const all = frames[0], picture = all.g.parentNode;
	const inverted = frames.length > 1 && frames[1].y > all.y; // boxes hang below their callers
	const open = [];
	for (const f of frames) {
		f.depth = Math.abs(all.y - f.y) / ROW;
		open.length = f.depth;
		f.parent = open[f.depth - 1];
		open.push(f);
	}
	for (const f of [...frames].reverse()) {
		if (f.parent) f.parent.end = Math.max(f.parent.end, f.end);
	}
	const byGroup = new Map(frames.map(f => [f.g, f]));
	const frameOf = element => byGroup.get(element.closest("#frames > g"));
	const above = (f, g) => g.index >= f.index && g.index < f.end;

	// What the head has besides what is in the file.
	const head = svg.querySelector("#head"), details = svg.querySelector("#details");
	const heading = head.querySelector("text"), title = heading.textContent, summary = details.textContent;
	const charWidth = details.getComputedTextLength() / summary.length;
	const reset = make("text", { id: "reset", class: "ink", y: 20, "text-anchor": "end" }, head);
	const matched = make("text", { class: "ink", y: 39, "text-anchor": "end" }, head);
	const holder = make("foreignObject", { y: 4, width: 250, height: 24 }, head);
	const input = make("input", { id: "search", type: "search", placeholder: "search: text or regexp" }, holder,
		"http://www.w3.org/1999/xhtml");

	const cut = (text, columns) => {
		const runes = Array.from(text);
		const size = r => r.codePointAt(0) < 0x1100 ? 1 : 2;
		let used = 0, end = 0;
		for (let i = 0; i < runes.length; i++) {
			used += size(runes[i]);
			if (used > columns) return columns < 3 ? "" : runes.slice(0, end).join("") + "…";
			if (used < columns) end = i + 1;
		}
		return text;
	};
	const fit = (text, columns) => {
		while (cut(text, columns) !== text) {
			const rest = text.replace(QUALIFIER, "");
			if (rest === text || rest === "" || APPENDED.test(rest)) break;
			text = rest;
		}
		return cut(text, columns);
	};
	const pixels = () => svg.getBoundingClientRect().width;

	function label() {
		const page = pixels();
		for (const f of frames) {
			if (!f.shown) continue;
			const room = (page * f.shownWidth / 100 - 2 * PAD) / charWidth;
			const text = room < 3 ? "" : fit(f.short, Math.floor(room));
			if (!text && !f.text) continue;
			f.text ??= make("text", { dx: PAD, y: f.y + ROW - 4 }, f.g);
			f.text.setAttribute("x", f.left + "%");
			f.text.textContent = text;
		}
		heading.textContent = cut(title, Math.floor((page - 290) / charWidth * 12 / 14)); // beside the search
		holder.setAttribute("x", page - 258);
		matched.setAttribute("x", page - 8);
		reset.setAttribute("x", page - 270);
		show(current === all ? null : current);
	}

	// The rows that show: the usual ones, and those of which the zoomed part has one percent.
	const usual = +svg.getAttribute("height");
	let height = usual;
	function fitHeight(levels) {
		let rows = levels.length;
		while (rows > USUAL && levels[rows - 1] < 1) rows--;
		const higher = Math.max(usual, 70 + rows * ROW) - height;
		height += higher;
		svg.setAttribute("height", height);
		if (inverted) return;
		picture.setAttribute("transform", `translate(0 ${height - usual})`);
		if (alone) window.scrollBy(0, higher);
	}

	let current = all, zoomed = all;
	function zoom(to) {
		if (!(to.width > 0)) return;
		zoomed = to;
		const levels = [];
		for (const f of frames) {
			const inside = above(to, f);
			f.shown = inside || above(f, to);
			f.g.style.display = f.shown ? "" : "none";
			if (!f.shown) continue;
			f.left = inside ? (f.x - to.x) * 100 / to.width : 0;
			f.shownWidth = inside ? f.width * 100 / to.width : 100;
			f.rect.setAttribute("x", f.left + "%");
			f.rect.setAttribute("width", f.shownWidth + "%");
			f.g.classList.toggle("below", !inside);
			levels[f.depth] = (levels[f.depth] ?? 0) + f.shownWidth;
		}
		fitHeight(levels);
		reset.textContent = to === all ? "" : "reset zoom";
		label();
		search(input.value);
	}

	const room = () => Math.floor((pixels() - 16) / charWidth); // of a line
	function show(f) {
		if (!f) {
			details.textContent = cut(summary, room());
			return;
		}
		let amount = f.title.slice(f.name.length);
		if (zoomed !== all && above(zoomed, f)) amount = amount.replace(/\)$/, `, ${f.shownWidth.toFixed(2)} % of the zoomed part)`);
		f.tip.textContent = f.name + amount;
		details.textContent = cut(f.name.replace("\n", " in "), room() - amount.length) + amount;
	}

	function search(query) {
		let pattern;
		const flags = /\p{Lu}/u.test(query) ? "m" : "im";
		try {
			pattern = new RegExp(query, flags);
		} catch { // then it is text
			pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), flags);
		}
		let share = 0, counted = 0; // boxes above a counted one are part of it
		for (const f of frames) {
			const hit = query !== "" && f !== all && pattern.test(f.name);
			f.g.classList.toggle("hit", hit);
			if (!hit || f.index < counted || !above(zoomed, f)) continue;
			share += f.shownWidth;
			counted = f.end;
		}
		matched.textContent = query === "" ? "" : "matched " + share.toFixed(2) + (zoomed === all ? " %" : " % of the zoomed part");
	}

	function go(f) {
		if (!f || !f.shown) return;
		current.g.classList.remove("current");
		current = f;
		f.g.classList.add("current");
		f.rect.scrollIntoView({ block: "nearest" });
		show(f);
	}

	// near returns the closest box of the same parent in a direction.
	function near(f, step) {
		for (let i = f.index + step; f.parent && i > f.parent.index && i < f.parent.end; i += step) {
			if (frames[i].depth === f.depth) return frames[i];
		}
	}

	// widest returns the heaviest box on f.
	function widest(f) {
		let best;
		for (let i = f.index + 1; i < f.end; i = frames[i].end) {
			if (frames[i].shown && !(best && best.width >= frames[i].width)) best = frames[i];
		}
		return best;
	}

	function resetZoom() {
		zoom(all);
		go(all);
		show(null);
	}

	const keys = {
		ArrowUp: () => go(inverted ? current.parent : widest(current)),
		ArrowDown: () => go(inverted ? widest(current) : current.parent),
		ArrowLeft: () => go(near(current, -1)),
		ArrowRight: () => go(near(current, 1)),
		Enter: () => zoom(current),
		Escape: resetZoom,
		"/": () => input.focus(),
	};
	document.addEventListener("keydown", e => {
		if ((e.ctrlKey || e.metaKey) && e.key === "f" && document.activeElement !== input) {
			e.preventDefault(); // a second time it is the browser's own
			input.select();
			return;
		}
		if (e.ctrlKey || e.metaKey || e.altKey || !alone && !svg.contains(document.activeElement)) return;
		if (document.activeElement === input) {
			if (e.key === "Escape") {
				input.value = "";
				search("");
			}
			if (e.key === "Escape" || e.key === "Enter") input.blur();
			return;
		}
		if (!keys[e.key]) return;
		e.preventDefault();
		keys[e.key]();
	});
	input.addEventListener("input", () => search(input.value));
	reset.addEventListener("click", resetZoom);
	picture.addEventListener("click", e => {
		const f = frameOf(e.target);
		zoom(f);
		go(f);
	});
	picture.addEventListener("pointerover", e => show(frameOf(e.target)));
	picture.addEventListener("pointerout", () => show(current === all ? null : current));
	window.addEventListener("resize", label);
	if (alone) {
		// The head stays in view; where stacks begin is shown first.
		window.addEventListener("scroll", () => head.setAttribute("transform", `translate(0 ${window.scrollY})`));
	}
	if (!svg.dataset.fixed) svg.setAttribute("width", "100%");
	zoom(all);
	if (alone && !inverted) window.scrollTo(0, svg.getBoundingClientRect().height);
})();
