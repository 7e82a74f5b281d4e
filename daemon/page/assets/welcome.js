// What an empty chat shows.

import { h } from './dom.js';

// welcome shows examples, which ask takes.
export function welcome(ask) {
  const example = (text) => h('button', { type: 'button', onclick: () => ask(text) }, text);
  return h('div', { class: 'welcome' },
    h('p', null, 'Ask the model of this machine. Nothing leaves it.'),
    h('div', { class: 'examples' }, example('What is 4821 + 977?'), example('Sort 31, 7, 240, 18.'), example('How many r\'s are in strawberry?')));
}
