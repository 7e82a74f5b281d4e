// The branches of a chat. Messages are stored in the order in which they were made, each with the index of the one that
// it follows, so a message whose parent has several is one of several branches. leaf is the end of the branch shown.

// path returns the indexes of the messages from the first to the leaf.
export function path(chat) {
  const out = [];
  for (let i = chat.leaf; i >= 0; i = chat.messages[i].parent) out.unshift(i);
  return out;
}

// add puts a message after the one at index parent, and makes it the leaf.
export function add(chat, message, parent = chat.leaf) {
  message.parent = parent;
  chat.leaf = chat.messages.push(message) - 1;
  return chat.leaf;
}

// siblings returns the indexes of the messages that follow the same one.
export function siblings(chat, i) {
  const { parent } = chat.messages[i];
  return chat.messages.map((m, k) => (m.parent === parent ? k : -1)).filter((k) => k >= 0);
}

// show makes the newest branch through message i the one shown.
export function show(chat, i) {
  const below = new Set([i]);
  chat.leaf = i;
  for (let k = i + 1; k < chat.messages.length; k++) {
    if (!below.has(chat.messages[k].parent)) continue;
    below.add(k);
    chat.leaf = k;
  }
}
