"use strict";
// The words of the pages, in the language of the browser. An English text is its own key.
const ZH = {
  "cnllm gateway: log in": "cnllm 网关：登录", "cnllm gateway": "cnllm 网关", "Operator's key": "管理员密钥", "simulated": "模拟",
  "The key of --admin-key; where none is set, a key of the gateway.": "--admin-key 的密钥；没有设置时，用网关的密钥。", "Log in": "登录",
  "this key is wrong": "密钥不正确", "no key opens this page: set CNLLM_ADMIN_KEY": "还没有能打开本页的密钥：请设置 CNLLM_ADMIN_KEY",
  "cnllm gateway: last requests": "cnllm 网关：最近的请求", "Last requests": "最近的请求", "loading…": "正在加载…",
  "Reload": "刷新", "Log out": "退出登录", "Requests": "请求", "Keys and teams": "密钥与团队", "One request": "单个请求",
  "Time": "时间", "Status": "状态", "Key": "密钥", "Model": "模型", "Protocol": "协议", "Seconds": "用时（秒）", "First": "首 token",
  "Tokens": "token 数", "Cost": "费用", "Notes": "说明", "Name": "名称", "State": "状态", "Team": "团队", "Calls": "调用次数",
  "Used and allowed": "用量与限额", "From the client": "客户端发来的请求", "To the endpoint": "发给接口的请求", "The reply": "回复",
  "nothing was sent": "没有发送", "no reply": "没有回复", "none": "无", "no limit": "没有限额",
  "models {names}": "模型 {names}",
  "1 request is kept": "保留了 1 个请求", "{n} requests are kept": "保留了 {n} 个请求", "team {name}": "团队 {name}",
  "{n} of {limit} requests a minute": "每分钟请求 {n} / {limit}", "{n} of {limit} tokens a minute": "每分钟 token {n} / {limit}",
  "{n} of {limit} in flight": "正在处理 {n} / {limit}", "{n} of {limit} {currency}{period}": "{period}{n} / {limit} {currency}",
  " a day": "每天 ", " a week": "每周 ", " a month": "每月 ", ", warns at {limit}": "，达到 {limit} 时提醒", "until {time}": "有效期至 {time}",
  "Routes by measurement": "按实际表现排序的路由", "Host": "接口", "Turns": "轮次", "Failed": "失败", "Price": "价格", "Loss": "损失", "Choice": "选择",
  "{failed} ({low} to {high} %)": "{failed}（{low}% 到 {high}%）", "asked first: {reason} ({time})": "首选：{reason}（{time}）",
  "it is shown to be better": "数据表明它更好", "no other host is shown to be better": "没有数据表明别的接口更好",
  "it has the beginning of the conversation in its cache": "它的缓存里有这段对话的开头", "it is tested again": "这次用来重新测试它",
  "in use": "有效", "revoked": "已吊销", "expired": "已过期", "; ": "；", ", ": "、", "finish: {finish}": "结束：{finish}",
};
const isChinese = /^zh\b/i.test(navigator.language);
const t = (text, values = {}) =>
  ((isChinese && ZH[text]) || text).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

if (isChinese) {
  document.documentElement.lang = "zh-CN";
  document.title = t(document.title);
  for (const node of document.querySelectorAll("[aria-label]")) node.ariaLabel = t(node.ariaLabel);
  for (const node of document.querySelectorAll("h1, h2, h3, th, label, button, p")) {
    node.textContent = t(node.textContent.trim());
  }
}
