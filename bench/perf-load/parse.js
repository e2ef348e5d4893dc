// What bundlers do: parses all JavaScript below a folder (the first argument),
// walks the syntax trees, and has each file compiled. Run with --expose-internals.
const fs = require('fs'), path = require('path'), vm = require('vm');
const {Parser} = require('internal/deps/acorn/acorn/dist/acorn');
const {full} = require('internal/deps/acorn/acorn-walk/dist/walk');
let files = 0, nodes = 0;
const names = new Map();
const visit = dir => {
  for (const entry of fs.readdirSync(dir, {withFileTypes: true})) {
    const file = path.join(dir, entry.name);
    if (entry.isDirectory()) visit(file);
    else if (/\.js$/.test(entry.name)) {
      const source = fs.readFileSync(file, 'utf8').replace(/^#!.*/, '');
      try {
        full(Parser.parse(source, {ecmaVersion: 'latest', sourceType: 'script', allowReturnOutsideFunction: true, locations: true}), node => {
          nodes++;
          if (node.type === 'Identifier') names.set(node.name, (names.get(node.name) || 0) + 1);
        });
        new vm.Script('(function () {' + source + '\n})');
        files++;
      } catch (e) {
        if (!(e instanceof SyntaxError)) throw e; // a module
      }
    }
  }
};
visit(process.argv[2]);
console.log(files, nodes, [...names].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).length);
