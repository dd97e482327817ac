// An explorer without a kernel: its controls choose among the pictures that were drawn when the site was written.

function enliven(explorer) {
    const stored = explorer.querySelector("script");
    if (!stored) return;
    const grid = JSON.parse(stored.textContent);
    const inputs = grid.controls.map(control => control.slider ? slider(control) : menu(control));
    const box = document.createElement("div");
    box.className = "controls";
    box.append(...grid.controls.map((control, number) => labeled(control, inputs[number])));
    explorer.prepend(box);
    box.addEventListener("input", () => {
        const places = inputs.map(input => Number(input.value));
        const number = places.reduce((all, place, axis) => all * grid.controls[axis].labels.length + place, 0);
        show(explorer, grid, ...grid.shown[number]);
    });
}

function slider(control) {
    const input = document.createElement("input");
    Object.assign(input, {type: "range", min: 0, max: control.labels.length - 1, value: control.first});
    return input;
}

function menu(control) {
    const select = document.createElement("select");
    select.append(...control.labels.map((label, number) => new Option(label, number)));
    select.value = control.first;
    return select;
}

function labeled(control, input) {
    const label = document.createElement("label");
    label.append(control.name, input);
    if (control.slider) {
        const value = document.createElement("output");
        const say = () => {
            value.textContent = control.labels[input.value];
            input.setAttribute("aria-valuetext", value.textContent);
        };
        say();
        input.addEventListener("input", say);
        label.append(value);
    }
    return label;
}

function show(explorer, grid, picture, alt, text) {
    for (const image of explorer.querySelectorAll("img")) {
        image.hidden = picture === null;
        if (picture === null) continue;
        const [name, width, height] = grid.pictures[picture];
        const dark = image.classList.contains("only-dark") ? "-dark" : "";
        Object.assign(image, {src: `${grid.url}${name}${dark}.png`, width, height, alt: alt || image.alt});
    }
    explorer.querySelector("pre").textContent = text;
}

// What is too wide can be scrolled with keys, too.

function reach() {
    for (const box of document.querySelectorAll("article :is(pre, table, .table-wrapper, .picture)")) {
        if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
        else box.removeAttribute("tabindex");
    }
}

window.addEventListener("resize", reach);
window.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".explorer").forEach(enliven);
    reach();
});
